package integration

import (
	"context"
	"maps"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
)

// vmFailure is a cause of a failed create_vm, and the expected error.
type vmFailure struct {
	properties   map[string]any
	timeouts     map[string]any
	prepare      func(ctx context.Context, env testEnv)
	messages     []string // substrings of the error
	retry        bool     // ok_to_retry of the error
	untilTimeout bool     // create_vm waits until its timeout
}

// waitingProperties returns cloud_properties that make the simulated node report this waiting reason for the VM container.
func waitingProperties(reason, message string, annotationPairs ...string) map[string]any {
	annotations := map[string]any{"test/waiting": reason, "test/message": message}
	for i := 0; i < len(annotationPairs); i += 2 {
		annotations[annotationPairs[i]] = annotationPairs[i+1]
	}
	return map[string]any{"annotations": annotations}
}

var _ = DescribeTable("create_vm reports why it cannot succeed, and no objects remain:",
	func(ctx context.Context, f vmFailure) {
		env := newTestEnv(ctx)
		timeouts := map[string]any{}
		if f.untilTimeout {
			timeouts["create_vm"] = waitTimeout
		}
		maps.Copy(timeouts, f.timeouts)
		env.Director = env.directorWithTimeouts(timeouts)
		if f.prepare != nil {
			f.prepare(ctx, env)
		}
		if f.properties == nil {
			f.properties = map[string]any{}
		}
		failed := env.mustFail(ctx, "create_vm", "failing", stemcellCID, f.properties, dynamicNetwork(), []string{}, map[string]any{})
		Expect(failed.Type).To(Equal("Bosh::Clouds::VMCreationFailed"))
		for _, message := range f.messages {
			Expect(failed.Message).To(ContainSubstring(message))
		}
		Expect(failed.OkToRetry).To(Equal(f.retry), failed.Message)
		Expect(strings.HasSuffix(failed.Message, "["+call.CodeVMStartTimeout.Name+"]")).To(Equal(f.untilTimeout), failed.Message)
		Eventually(env.listObjects).WithContext(ctx).Should(BeEmpty())
	},
	Entry("an image that does not exist", vmFailure{
		properties: waitingProperties("ErrImagePull", "rpc error: code = NotFound desc = failed to pull and unpack image: registry.example.com/stemcell: not found"),
		messages:   []string{"registry.example.com/stemcell: not found"}}),
	Entry("an image without permission to pull it", vmFailure{
		properties: waitingProperties("ErrImagePull", "failed to authorize: unexpected status from GET request to https://registry.example.com/token: 401 Unauthorized"),
		messages:   []string{"401 Unauthorized"}}),
	Entry("a registry that does not respond, which may be temporary", vmFailure{untilTimeout: true, retry: true,
		properties: waitingProperties("ErrImagePull", "dial tcp 10.0.0.1:443: i/o timeout"),
		messages:   []string{"i/o timeout"}}),
	Entry("an image for another architecture than the node's", vmFailure{retry: true,
		properties: waitingProperties("ErrImagePull", `failed to pull and unpack image "registry.example.com/stemcell": no match for platform in manifest: not found`),
		messages:   []string{"no match for platform", "kubernetes.io/arch"}}),
	Entry("an image with an invalid name", vmFailure{
		properties: waitingProperties("InvalidImageName", "couldn't parse image name"),
		messages:   []string{"InvalidImageName", "couldn't parse image name"}}),
	Entry("a Secret that does not exist", vmFailure{
		properties: waitingProperties("CreateContainerConfigError", `secret "operators" not found`),
		messages:   []string{`secret "operators" not found`}}),
	Entry("a crash loop", vmFailure{
		properties: waitingProperties("CrashLoopBackOff", "back-off 40s restarting failed container", "test/restarts", "3", "test/log", "the image is not a BOSH stemcell"),
		messages:   []string{"CrashLoopBackOff", "the image is not a BOSH stemcell", "status 1"}}),
	Entry("a VM that crashed once, which may be temporary", vmFailure{untilTimeout: true, retry: true,
		properties: waitingProperties("CrashLoopBackOff", "back-off 10s", "test/restarts", "1", "test/log", "a temporary failure"),
		messages:   []string{"a temporary failure"}}),
	Entry("no node, without a wait", vmFailure{retry: true,
		properties: map[string]any{"node_selector": map[string]any{"no": "such"}}, timeouts: map[string]any{"unschedulable": "0s"},
		messages: []string{"didn't match Pod's node affinity/selector"}}),
	Entry("no node, with a short wait", vmFailure{retry: true,
		properties: map[string]any{"cpu": 100000}, timeouts: map[string]any{"unschedulable": "1s"},
		messages: []string{"Insufficient cpu", "within 1s"}}),
	Entry("no node, and an autoscaler that adds none", vmFailure{
		prepare:    simulateAutoscaler("NotTriggerScaleUp", "pod didn't trigger scale-up: 1 node(s) didn't match Pod's node affinity/selector"),
		properties: map[string]any{"zone": "none"}, messages: []string{"no autoscaler will add one", "didn't trigger scale-up"}}),
	Entry("no node, and an autoscaler that adds one too late", vmFailure{retry: true,
		prepare:    simulateAutoscaler("TriggeredScaleUp", "pod triggered scale-up: [{large 1->2 (max: 3)}]"),
		timeouts:   map[string]any{"unschedulable": "8s"},
		properties: map[string]any{"cpu": 100000}, messages: []string{"Insufficient cpu", "within 8s"}}),
	Entry("no node with enough capacity, and no autoscaler", long, vmFailure{
		properties: map[string]any{"cpu": 100000}, messages: []string{"requests cpu: 100k, and the largest node has "}}),
	Entry("no node in the zone, and no autoscaler", long, vmFailure{
		properties: map[string]any{"zone": "none"},
		messages:   []string{"no node matches the VM's placement", "it requires the node label topology.kubernetes.io/zone=none, which no node has"}}),
	Entry("no node, with a wait until the timeout", vmFailure{untilTimeout: true, retry: true,
		properties: map[string]any{"zone": "none"},
		messages:   []string{"didn't match Pod's node affinity/selector"}}),
	Entry("an ephemeral disk with a StorageClass that does not exist", vmFailure{
		properties: map[string]any{"ephemeral_disk": map[string]any{"size": 64, "storage_class": "none"}},
		messages:   []string{`"none" not found`}}),
	Entry("a RuntimeClass that does not exist", vmFailure{
		properties: map[string]any{"runtime_class": "none"}, messages: []string{`RuntimeClass "none" not found`}}),
	Entry("a PriorityClass that does not exist", vmFailure{
		properties: map[string]any{"priority_class": "none"}, messages: []string{"no PriorityClass with name none was found"}}),
	Entry("a service account that does not exist", vmFailure{
		properties: map[string]any{"service_account": "none"}, messages: []string{`serviceaccount "none" not found`}}),
	Entry("a ResourceQuota that is used up", vmFailure{prepare: createSmallQuota, properties: map[string]any{"memory": 64},
		messages: []string{"exceeded quota: small"}}),
	Entry("a namespace without privileged Pods", vmFailure{prepare: enforceRestricted,
		messages: []string{`violates PodSecurity "restricted`, "privileged"}}),
	Entry("an admission webhook that denies the Pod", vmFailure{prepare: denyAllPods,
		messages: []string{"deny.integration.test", "VMs are not allowed"}}),
)

// createSmallQuota creates a ResourceQuota that is too small for a VM.
func createSmallQuota(ctx context.Context, env testEnv) {
	env.createQuota(ctx, corev1.ResourceList{corev1.ResourceLimitsMemory: resource.MustParse("1Mi")})
}

// enforceRestricted sets the Pod Security label of the namespace to restricted.
func enforceRestricted(ctx context.Context, env testEnv) {
	namespace, err := cluster.CoreV1().Namespaces().Get(ctx, env.namespace, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	namespace.Labels["pod-security.kubernetes.io/enforce"] = "restricted"
	_, err = cluster.CoreV1().Namespaces().Update(ctx, namespace, metav1.UpdateOptions{})
	Expect(err).NotTo(HaveOccurred())
	waitForPodRejection(ctx, env, `violates PodSecurity`)
}

// denyAllPods makes an admission webhook deny all Pods of the namespace.
func denyAllPods(ctx context.Context, env testEnv) {
	env.denyPods(ctx, "VMs are not allowed", func(*corev1.Pod) bool { return true })
	waitForPodRejection(ctx, env, "VMs are not allowed")
}

// waitForPodRejection waits until the API server rejects a privileged Pod with this message, because policies take effect with a delay.
func waitForPodRejection(ctx context.Context, env testEnv, message string) {
	GinkgoHelper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "try-"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "try", Image: "i:1", SecurityContext: &corev1.SecurityContext{Privileged: new(true)}}}}}
	Eventually(func() error {
		_, err := cluster.CoreV1().Pods(env.namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}).WithContext(ctx).Should(MatchError(ContainSubstring(message)))
}

// simulateAutoscaler records an Event with this reason and message for each unschedulable Pod in the namespace.
func simulateAutoscaler(reason, message string) func(context.Context, testEnv) {
	return func(ctx context.Context, env testEnv) {
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		pods, err := cluster.CoreV1().Pods(env.namespace).Watch(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { cancel(); pods.Stop() })
		go func() {
			for event := range pods.ResultChan() {
				pod, isPod := event.Object.(*corev1.Pod)
				if !isPod || kube.UnschedulableReason(pod) == "" {
					continue
				}
				now := metav1.Now()
				_, _ = cluster.CoreV1().Events(env.namespace).Create(ctx, &corev1.Event{
					ObjectMeta:     metav1.ObjectMeta{GenerateName: pod.Name + ".", Namespace: env.namespace},
					InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: env.namespace, Name: pod.Name, UID: pod.UID},
					Reason:         reason, Message: message, Type: corev1.EventTypeNormal, LastTimestamp: now, FirstTimestamp: now,
					Source: corev1.EventSource{Component: "cluster-autoscaler"},
				}, metav1.CreateOptions{})
			}
		}()
	}
}
