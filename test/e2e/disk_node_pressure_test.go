//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/test/harness/embedded"
)

// The kubelet evicts a Pod every ten seconds while the node is under pressure, and first those that exceed their requests. The specs last
// five minutes, and leave the kubelet enough Pods to evict before VMs.
const (
	evictablePods = 40
	evictions     = 25
)

// exceededThreshold is an eviction threshold that the node does not meet. The kubelet also reserves it, and the VM uses the rest.
const exceededThreshold = "97%"

var _ = Describe("A disk of a VM on a node", Label("disks", "extended", labelSharedKernel), Serial, func() {
	var (
		env  *testEnv
		node *embedded.Node
		vm   *testVM
		disk string
	)
	BeforeEach(func(ctx context.Context) {
		env = newTestEnv(ctx)
		node = env.ensureSecondNode(ctx)
		env.reconfigureKubelet(ctx, node, map[string]any{"localStorageCapacityIsolation": true}) // it measures filesystems only then
		vm = env.createVMFromSpec(ctx, vmSpec{properties: map[string]any{
			"node_selector": map[string]any{"kubernetes.io/hostname": node.Name}, "memory": 256, "ephemeral_disk": 1024,
		}})
		disk = env.createDisk(ctx, 64, nil)
		vm.attach(ctx, disk)
		vm.startWriter(ctx)
	})
	AfterEach(func(ctx context.Context) { env.deleteVMs(ctx) })

	// expectUninterrupted expects that the VM and the attachment Pod are the same as before, and that the VM wrote to the disk meanwhile.
	expectUninterrupted := func(ctx context.Context, previous identity, attachment *corev1.Pod) {
		GinkgoHelper()
		Expect(vm.identity(ctx)).To(Equal(previous))
		current := env.attachmentPod(ctx, disk)
		Expect(current.UID).To(Equal(attachment.UID))
		Expect(current.Status.Phase).To(Equal(corev1.PodRunning))
		Expect(current.DeletionTimestamp).To(BeNil())
		Expect(current.Status.ContainerStatuses[0].RestartCount).To(BeZero())
		vm.expectWriting(ctx)
	}

	DescribeTable("stays attached while the kubelet evicts Pods under", func(ctx context.Context, condition corev1.NodeConditionType, signal string) {
		for i := range evictablePods {
			env.createPauseContainerPod(ctx, fmt.Sprintf("evictable-%d", i), node, nil)
		}
		env.waitForPods(ctx, "evictable", evictablePods, corev1.PodRunning)
		previous, attachment := vm.identity(ctx), env.attachmentPod(ctx, disk)
		env.reconfigureKubelet(ctx, node, map[string]any{"evictionHard": map[string]any{signal: exceededThreshold}})
		env.waitForPods(ctx, "evictable", evictions, corev1.PodFailed)
		current, err := env.cluster.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(current.Status.Conditions).To(ContainElement(And(HaveField("Type", condition), HaveField("Status", corev1.ConditionTrue))))
		expectUninterrupted(ctx, previous, attachment)
	},
		Entry("disk pressure", corev1.NodeDiskPressure, "nodefs.available", NodeTimeout(2*longTest)),
		Entry("memory pressure", corev1.NodeMemoryPressure, "memory.available", NodeTimeout(2*longTest)),
	)

	It("stays attached when the kubelet admits a critical static Pod on the full node, by preempting another Pod", func(ctx context.Context) {
		staticPods := filepath.Join(node.Dir, "static-pods")
		Expect(os.MkdirAll(staticPods, 0o755)).To(Succeed())
		DeferCleanup(os.RemoveAll, staticPods)
		env.reconfigureKubelet(ctx, node, map[string]any{"staticPodPath": staticPods})
		filler := env.createPauseContainerPod(ctx, "filler", node, corev1.ResourceList{corev1.ResourceCPU: *env.unrequestedCPU(ctx, node)})
		env.waitForPods(ctx, "filler", 1, corev1.PodRunning)
		previous, attachment := vm.identity(ctx), env.attachmentPod(ctx, disk)

		static := filler.DeepCopy()
		static.ObjectMeta = metav1.ObjectMeta{Name: "static", Namespace: env.namespace, Labels: map[string]string{"app": "static"}}
		static.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		static.Spec = pauseContainerSpec(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")})
		content, err := yaml.Marshal(static)
		Expect(err).NotTo(HaveOccurred())
		Expect(os.WriteFile(filepath.Join(staticPods, "static.yaml"), content, 0o600)).To(Succeed())
		env.waitForPods(ctx, "static", 1, corev1.PodRunning)

		preempted, err := env.cluster.CoreV1().Pods(env.namespace).Get(ctx, filler.Name, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(preempted.Status.Phase).To(Equal(corev1.PodFailed))
		expectUninterrupted(ctx, previous, attachment)
		vm.stopWriter(ctx)
		vm.detach(ctx, disk)
		vm.attach(ctx, disk)
	}, NodeTimeout(longTest))
})

// startWriter writes a growing number to the persistent disk ten times per second, until a write fails.
func (vm *testVM) startWriter(ctx context.Context) {
	GinkgoHelper()
	vm.run(ctx, `setsid bash -c 'n=0; while echo $((++n)) >/var/vcap/store/number.new && sync -f /var/vcap/store/number.new &&
		mv /var/vcap/store/number.new /var/vcap/store/number; do sleep 0.1; done; touch /tmp/writer-failed' </dev/null >/dev/null 2>&1 &`)
	Eventually(func() error { _, err := vm.tryRun(ctx, "test -s /var/vcap/store/number"); return err }).WithContext(ctx).Should(Succeed())
}

// expectWriting expects that the writer writes, and that no write has failed.
func (vm *testVM) expectWriting(ctx context.Context) {
	GinkgoHelper()
	written := func() int {
		number, err := strconv.Atoi(vm.run(ctx, "cat /var/vcap/store/number"))
		Expect(err).NotTo(HaveOccurred())
		return number
	}
	Expect(vm.run(ctx, "ls /tmp/writer-failed 2>/dev/null || true")).To(BeEmpty())
	before := written()
	Eventually(written).WithContext(ctx).Should(BeNumerically(">", before))
}

func (vm *testVM) stopWriter(ctx context.Context) {
	GinkgoHelper()
	vm.run(ctx, "pkill -f number.new; while pgrep -f number.new; do sleep 0.1; done")
}

func pauseContainerSpec(requests corev1.ResourceList) corev1.PodSpec {
	return corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, HostNetwork: true, TerminationGracePeriodSeconds: new(int64(1)),
		Containers: []corev1.Container{{Name: "pause", Image: embedded.PauseImage, Resources: corev1.ResourceRequirements{Requests: requests}}}}
}

// createPauseContainerPod creates a Pod with these requests on the node. Its label app is its name up to the first hyphen.
func (env *testEnv) createPauseContainerPod(ctx context.Context, name string, node *embedded.Node, requests corev1.ResourceList) *corev1.Pod {
	GinkgoHelper()
	app, _, _ := strings.Cut(name, "-")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}}, Spec: pauseContainerSpec(requests)}
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node.Name}
	pod, err := env.cluster.CoreV1().Pods(env.namespace).Create(ctx, pod, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return pod
}

// waitForPods waits until at least count Pods with this label app have the phase.
func (env *testEnv) waitForPods(ctx context.Context, app string, count int, phase corev1.PodPhase) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		pods, err := env.cluster.CoreV1().Pods(env.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
		g.Expect(err).NotTo(HaveOccurred())
		inPhase := 0
		for _, pod := range pods.Items {
			if pod.Status.Phase == phase {
				inPhase++
			}
		}
		g.Expect(inPhase).To(BeNumerically(">=", count))
	}).WithContext(ctx).WithTimeout(longTest).Should(Succeed())
}

// unrequestedCPU returns the CPU of the node that no Pod requests.
func (env *testEnv) unrequestedCPU(ctx context.Context, node *embedded.Node) *resource.Quantity {
	GinkgoHelper()
	current, err := env.cluster.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	pods, err := env.cluster.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node.Name})
	Expect(err).NotTo(HaveOccurred())
	free := current.Status.Allocatable.Cpu().DeepCopy()
	for _, pod := range pods.Items {
		for _, container := range pod.Spec.Containers {
			free.Sub(*container.Resources.Requests.Cpu())
		}
	}
	return &free
}

// reconfigureKubelet restarts the node's kubelet with these settings, and restores the previous ones after the spec.
func (env *testEnv) reconfigureKubelet(ctx context.Context, node *embedded.Node, settings map[string]any) {
	GinkgoHelper()
	path := filepath.Join(node.Dir, "kubelet.yaml")
	previous, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	var merged map[string]any
	Expect(yaml.Unmarshal(previous, &merged)).To(Succeed())
	maps.Copy(merged, settings)
	content, err := yaml.Marshal(merged)
	Expect(err).NotTo(HaveOccurred())
	restart := func(ctx context.Context, content []byte) {
		Expect(os.WriteFile(path, content, 0o600)).To(Succeed())
		Expect(node.RestartKubelet(ctx)).To(Succeed())
	}
	restart(ctx, content)
	DeferCleanup(func(ctx context.Context) { restart(ctx, previous) })
}
