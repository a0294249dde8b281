//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/harness/director"
	"bosh-kubernetes-cpi/test/harness/embedded"
)

// Uses the real Calico. BOSH requires that a VM gets and keeps the address chosen by the director.
var _ = Describe("The address of a VM", Label("networks"), func() {
	var env *testEnv
	BeforeEach(func(ctx context.Context) { env = newTestEnv(ctx) })

	It("is the address of its manual network, and VMs reach each other at it", func(ctx context.Context) {
		first, second := env.createVM(ctx), env.createVM(ctx)
		Expect(first.pod(ctx).Status.PodIP).To(Equal(first.address))
		for _, pair := range [][2]*testVM{{first, second}, {second, first}} {
			Expect(pair[0].sourceAddressAt(ctx, pair[1])).To(Equal(pair[0].address))
		}
	}, NodeTimeout(longTest))

	It("on a manual network survives restarts of its container and its sandbox", func(ctx context.Context) {
		vm := env.createVM(ctx)
		vm.expectKeepsAddress(ctx, vm.killContainer)
		vm.expectKeepsAddress(ctx, vm.killSandbox)
	}, NodeTimeout(longTest))

	It("on a dynamic network survives restarts of its container and its sandbox", func(ctx context.Context) {
		vm := env.createVMOnNetworks(ctx, dynamicNetwork())
		vm.expectKeepsAddress(ctx, vm.killContainer)
		vm.expectKeepsAddress(ctx, vm.killSandbox)
	}, Label("extended"), NodeTimeout(longTest))

	It("can be assigned to another VM as soon as delete_vm returns, 20 times in a row", func(ctx context.Context) {
		stemcell, address := env.createStemcell(ctx, os.Getenv("E2E_STEMCELL")), newAddress()
		for i := range 20 {
			agentID := fmt.Sprintf("%s-again-%d", env.namespace, i)
			env.mustCall(ctx, "create_vm", agentID, stemcell, map[string]any{}, manualNetwork(address), []string{}, map[string]any{})
			Expect((&testVM{env: env, cid: "agent-" + agentID}).pod(ctx).Status.PodIP).To(Equal(address))
			env.mustCall(ctx, "delete_vm", "agent-"+agentID)
		}
	}, Label("extended"), NodeTimeout(longTest))

	It("makes create_vm fail with Calico's error if no pool contains it, and leaves no objects", func(ctx context.Context) {
		config := filepath.Join(GinkgoT().TempDir(), "cpi.json")
		Expect(director.WriteConfig(config, env.kubeconfig, env.namespace, map[string]any{
			"timeouts": map[string]any{"create_vm": "15s"}, "node_image": os.Getenv("E2E_NODE_IMAGE"),
		})).To(Succeed())
		directorWithTimeout := &director.Director{CPI: env.CPI, Config: config}
		response, err := directorWithTimeout.Call(ctx, "create_vm", env.namespace, env.createStemcell(ctx, os.Getenv("E2E_STEMCELL")), map[string]any{}, manualNetwork("203.0.113.7"), []string{}, map[string]any{})
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Error).NotTo(BeNil())
		Expect(response.Error.Type).To(Equal("Bosh::Clouds::VMCreationFailed"))
		Expect(response.Error.Message).To(ContainSubstring("requested 203.0.113.7 (network default)"))
		Expect(response.Error.Message).To(MatchRegexp(`FailedCreatePodSandBox: .*plugin type="calico".*configured pool`))
		remaining, err := env.embedded.ControlPlane.Kubectl(ctx, "get", "-n", env.namespace, "pods,secrets", "-o", "name")
		Expect(err).NotTo(HaveOccurred())
		Expect(remaining).To(BeEmpty())
	}, NodeTimeout(longTest))

	It("is assigned when a terminating Pod releases it", func(ctx context.Context) {
		address := newAddress()
		holder := env.createAddressHolder(ctx, address)
		Expect(env.cluster.CoreV1().Pods(env.namespace).Delete(ctx, holder, metav1.DeleteOptions{})).To(Succeed())
		env.mustCall(ctx, "create_vm", env.namespace, env.createStemcell(ctx, os.Getenv("E2E_STEMCELL")), map[string]any{}, manualNetwork(address), []string{}, map[string]any{})
		vm := &testVM{env: env, cid: "agent-" + env.namespace}
		Expect(vm.pod(ctx).Status.PodIP).To(Equal(address))
		events, err := env.cluster.CoreV1().Events(env.namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + vm.cid})
		Expect(err).NotTo(HaveOccurred())
		Expect(events.Items).To(ContainElement(HaveField("Reason", "FailedCreatePodSandBox")), "the address was still in use")
	}, NodeTimeout(longTest))
})

// createAddressHolder creates a Pod with this address and returns its name. The Pod uses its whole grace period to terminate.
func (env *testEnv) createAddressHolder(ctx context.Context, address string) string {
	GinkgoHelper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "holder", Annotations: map[string]string{"cni.projectcalico.org/ipAddrs": `["` + address + `"]`}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(8)),
			Containers: []corev1.Container{{Name: "holder", Image: embedded.BusyboxImage, ImagePullPolicy: corev1.PullIfNotPresent,
				Command: []string{"sh", "-c", "trap '' TERM; while true; do sleep 1; done"},
				// Privileged like a VM Pod, because Debian's runc and a self-built runc support different confinement.
				SecurityContext: &corev1.SecurityContext{Privileged: new(true)}}},
		},
	}
	_, err := env.cluster.CoreV1().Pods(env.namespace).Create(ctx, pod, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	Eventually(func(g Gomega) {
		pod, err := env.cluster.CoreV1().Pods(env.namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pod.Status.Phase).To(Equal(corev1.PodRunning))
		g.Expect(pod.Status.PodIP).To(Equal(address))
	}).WithContext(ctx).Should(Succeed())
	return pod.Name
}

func dynamicNetwork() map[string]any {
	return map[string]any{"default": map[string]any{"type": "dynamic", "dns": []string{}, "default": []string{"dns", "gateway"}, "cloud_properties": map[string]any{}}}
}

// sourceAddressAt opens a TCP connection to the other VM and returns the source address that the other VM sees.
func (vm *testVM) sourceAddressAt(ctx context.Context, other *testVM) string {
	GinkgoHelper()
	other.run(ctx, `setsid perl -MIO::Socket::INET -e '
		$s = IO::Socket::INET->new(Listen => 1, LocalPort => 7777, ReuseAddr => 1) or die $!;
		$c = $s->accept; print $c $c->peerhost' </dev/null >/dev/null 2>&1 &`)
	var seen string
	Eventually(func() (err error) {
		seen, err = vm.tryRun(ctx, "exec 3<>/dev/tcp/"+other.address+"/7777 && cat <&3")
		return err
	}).WithContext(ctx).Should(Succeed())
	return seen
}

// killContainer kills the VM's PID 1.
func (vm *testVM) killContainer(ctx context.Context) {
	GinkgoHelper()
	_, id, _ := strings.Cut(vm.pod(ctx).Status.ContainerStatuses[0].ContainerID, "://")
	_, err := vm.env.embedded.Nodes[0].Ctr(ctx, "tasks", "kill", "--signal", "SIGKILL", id)
	Expect(err).NotTo(HaveOccurred())
}

// killSandbox kills the pause process, which owns the Pod's network namespace. This has the same effect as a reboot of the node.
func (vm *testVM) killSandbox(ctx context.Context) {
	GinkgoHelper()
	previous := vm.sandboxID(ctx)
	_, err := vm.env.embedded.Nodes[0].Ctr(ctx, "tasks", "kill", "--signal", "SIGKILL", previous)
	Expect(err).NotTo(HaveOccurred())
	Eventually(vm.sandboxID).WithContext(ctx).ShouldNot(Or(BeEmpty(), Equal(previous)), "the kubelet creates a new sandbox")
}

// sandboxID returns the ID of the Pod's running sandbox, or "" if there is none.
func (vm *testVM) sandboxID(ctx context.Context) string {
	GinkgoHelper()
	node := vm.env.embedded.Nodes[0]
	sandboxes, err := node.Ctr(ctx, "containers", "list", "--quiet",
		fmt.Sprintf(`labels."io.cri-containerd.kind"==sandbox,labels."io.kubernetes.pod.uid"==%s`, vm.pod(ctx).UID))
	Expect(err).NotTo(HaveOccurred())
	tasks, err := node.Ctr(ctx, "tasks", "list")
	Expect(err).NotTo(HaveOccurred())
	for line := range strings.Lines(tasks) {
		fields := strings.Fields(line)
		if len(fields) == 3 && fields[2] == "RUNNING" && strings.Contains(sandboxes, fields[0]) {
			return fields[0]
		}
	}
	return ""
}

// expectKeepsAddress runs disrupt, and expects the VM to restart with the same address and its agent to respond there.
func (vm *testVM) expectKeepsAddress(ctx context.Context, disrupt func(context.Context)) {
	GinkgoHelper()
	previous := vm.identity(ctx)
	disrupt(ctx)
	Eventually(func(g Gomega) {
		status := vm.pod(ctx).Status.ContainerStatuses[0]
		g.Expect(status.RestartCount).To(BeNumerically(">", previous.Restarts))
		g.Expect(status.Ready).To(BeTrue())
	}, 2*time.Minute).WithContext(ctx).Should(Succeed())
	vm.waitForAgent(ctx)
	after := vm.identity(ctx)
	Expect(after.Address).To(Equal(vm.address))
	Expect(after.UID).To(Equal(previous.UID))
	Expect(after.Container).NotTo(Equal(previous.Container))
	Expect(after.Data).To(Equal(previous.Data))
}
