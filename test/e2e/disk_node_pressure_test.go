//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/test/harness/embedded"
)

// While the node is under pressure, the kubelet evicts a Pod every two seconds: first Pods that exceed their requests, then those that are
// closest to them. The specs last about five minutes, and leave the kubelet Pods to evict before VMs.
const (
	evictablePods = 150
	evictions     = 130
)

// evictableRequests are slightly more than an evictable Pod uses.
var evictableRequests = corev1.ResourceList{
	corev1.ResourceEphemeralStorage: resource.MustParse("1Mi"), corev1.ResourceMemory: resource.MustParse("16Mi"),
}

// The kubelet starts with this margin to its eviction threshold: when it starts, it rejects all Pods on a node under pressure.
const (
	pressureMargin = 6 << 30 // bytes; more than other programs on the host use meanwhile
	pressureFile   = 10 << 30
)

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
		env.reconfigureKubelet(ctx, node, map[string]any{"maxPods": 2 * evictablePods,
			"localStorageCapacityIsolation": true}) // it measures filesystems only then
		vm = env.createVMFromSpec(ctx, vmSpec{properties: map[string]any{
			"node_selector": map[string]any{"kubernetes.io/hostname": node.Name}, "memory": 256, "ephemeral_disk": 1024,
		}})
		disk = env.createDisk(ctx, 64, nil)
		vm.attach(ctx, disk)
		vm.startWriter(ctx)
	})
	AfterEach(func(ctx context.Context) { env.deleteVMs(ctx) })

	// reconfigureKubelet restarts the kubelet with these settings. It reports that it is healthy before it knows its Pods.
	reconfigureKubelet := func(ctx context.Context, settings map[string]any) {
		GinkgoHelper()
		env.reconfigureKubelet(ctx, node, settings)
		Eventually(func() error { _, err := vm.tryRun(ctx, "true"); return err }).WithContext(ctx).Should(Succeed())
	}

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

	DescribeTable("stays attached while the kubelet evicts Pods under", func(ctx context.Context, condition corev1.NodeConditionType, signal, dir string) {
		for i := range evictablePods {
			env.createPauseContainerPod(ctx, fmt.Sprintf("evictable-%d", i), node, evictableRequests)
		}
		env.waitForPods(ctx, "evictable", evictablePods, isRunning)
		threshold := strconv.FormatInt(env.available(ctx, node, signal)-pressureMargin, 10)
		reconfigureKubelet(ctx, map[string]any{"evictionHard": map[string]any{signal: threshold}})
		previous, attachment := vm.identity(ctx), env.attachmentPod(ctx, disk)
		file := filepath.Join(cmp.Or(dir, node.Dir), "pressure")
		DeferCleanup(os.RemoveAll, file)
		_, err := node.Shell(ctx, fmt.Sprintf("head -c %d /dev/zero >%s", pressureFile, file))
		Expect(err).NotTo(HaveOccurred())
		env.waitForPods(ctx, "evictable", evictions, kube.IsFinished)
		current, err := env.cluster.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(current.Status.Conditions).To(ContainElement(And(HaveField("Type", condition), HaveField("Status", corev1.ConditionTrue))))
		expectUninterrupted(ctx, previous, attachment)
	},
		Entry("disk pressure", corev1.NodeDiskPressure, "nodefs.available", "", NodeTimeout(2*longTest)),
		Entry("memory pressure", corev1.NodeMemoryPressure, "memory.available", "/dev/shm", NodeTimeout(2*longTest)),
	)

	It("stays attached when the kubelet admits a critical static Pod on the full node, by preempting another Pod", func(ctx context.Context) {
		staticPods := filepath.Join(node.Dir, "static-pods")
		Expect(os.MkdirAll(staticPods, 0o755)).To(Succeed())
		DeferCleanup(os.RemoveAll, staticPods)
		reconfigureKubelet(ctx, map[string]any{"staticPodPath": staticPods})
		filler := env.createPauseContainerPod(ctx, "filler", node, corev1.ResourceList{corev1.ResourceCPU: *env.unrequestedCPU(ctx, node)})
		env.waitForPods(ctx, "filler", 1, isRunning)
		previous, attachment := vm.identity(ctx), env.attachmentPod(ctx, disk)

		static := filler.DeepCopy()
		static.ObjectMeta = metav1.ObjectMeta{Name: "static", Namespace: env.namespace, Labels: map[string]string{"app": "static"}}
		static.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		static.Spec = pauseContainerSpec(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")})
		content, err := yaml.Marshal(static)
		Expect(err).NotTo(HaveOccurred())
		Expect(os.WriteFile(filepath.Join(staticPods, "static.yaml"), content, 0o600)).To(Succeed())
		env.waitForPods(ctx, "static", 1, isRunning)

		preempted, err := env.cluster.CoreV1().Pods(env.namespace).Get(ctx, filler.Name, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(preempted).To(Satisfy(kube.IsFinished))
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
	vm.run(ctx, "pkill -f '[n]umber.new'; while pgrep -f '[n]umber.new'; do sleep 0.1; done")
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

func isRunning(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning }

// waitForPods waits until the condition is true for at least count Pods with this label app.
func (env *testEnv) waitForPods(ctx context.Context, app string, count int, condition func(*corev1.Pod) bool) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		pods, err := env.cluster.CoreV1().Pods(env.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
		g.Expect(err).NotTo(HaveOccurred())
		remaining := slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return !condition(&pod) })
		g.Expect(len(remaining)).To(BeNumerically(">=", count))
	}).WithContext(ctx).WithTimeout(longTest).Should(Succeed())
}

// available returns the number of bytes that the kubelet measures for this eviction signal.
func (env *testEnv) available(ctx context.Context, node *embedded.Node, signal string) (bytes int64) {
	GinkgoHelper()
	type measured struct {
		AvailableBytes int64 `json:"availableBytes"`
	}
	var stats struct {
		Node struct{ FS, Memory measured } `json:"node"`
	}
	Eventually(func(g Gomega) {
		out, err := env.embedded.ControlPlane.Kubectl(ctx, "get", "--raw", "/api/v1/nodes/"+node.Name+"/proxy/stats/summary")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(json.Unmarshal([]byte(out), &stats)).To(Succeed())
		bytes = map[string]int64{"nodefs.available": stats.Node.FS.AvailableBytes, "memory.available": stats.Node.Memory.AvailableBytes}[signal]
		g.Expect(bytes).To(BeNumerically(">", pressureFile))
	}).WithContext(ctx).Should(Succeed())
	return bytes
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
