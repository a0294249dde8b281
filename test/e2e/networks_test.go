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

	"bosh-kubernetes-cpi/test/director"
	"bosh-kubernetes-cpi/test/embedded"
)

// The promise that BOSH relies on, with real Calico: the address that it chose is the machine's, and
// stays it.
var _ = Describe("A machine's address", Label("networks"), func() {
	var w *world
	BeforeEach(func(ctx context.Context) { w = newWorld(ctx) })

	It("is the one of its manual network, by which machines reach each other", func(ctx context.Context) {
		first, second := w.createMachine(ctx), w.createMachine(ctx)
		Expect(first.pod(ctx).Status.PodIP).To(Equal(first.address))
		for _, pair := range [][2]*machine{{first, second}, {second, first}} {
			Expect(pair[0].seenBy(ctx, pair[1])).To(Equal(pair[0].address))
		}
	}, NodeTimeout(longTest))

	It("of a manual network stays through restarts of its container and of its sandbox", func(ctx context.Context) {
		m := w.createMachine(ctx)
		m.keepsAddress(ctx, m.killContainer)
		m.keepsAddress(ctx, m.killSandbox)
	}, NodeTimeout(longTest))

	It("of a dynamic network stays through them, too", func(ctx context.Context) {
		m := w.createMachineOn(ctx, dynamic())
		m.keepsAddress(ctx, m.killContainer)
		m.keepsAddress(ctx, m.killSandbox)
	}, NodeTimeout(longTest))

	It("can be another machine's as soon as delete_vm has answered, 20 times in a row", func(ctx context.Context) {
		stemcell, address := w.stemcell(ctx, os.Getenv("E2E_STEMCELL")), newAddress()
		for i := range 20 {
			agent := fmt.Sprintf("%s-again-%d", w.namespace, i)
			w.must(ctx, "create_vm", agent, stemcell, map[string]any{}, manual(address), []string{}, map[string]any{})
			Expect((&machine{w: w, cid: "agent-" + agent}).pod(ctx).Status.PodIP).To(Equal(address))
			w.must(ctx, "delete_vm", "agent-"+agent)
		}
	}, Label("extended"), NodeTimeout(longTest))

	It("that no pool holds is an error with what Calico says, after which nothing is left", func(ctx context.Context) {
		config := filepath.Join(GinkgoT().TempDir(), "cpi.json")
		Expect(director.WriteConfig(config, w.kubeconfig, w.namespace, map[string]any{"timeouts": map[string]any{"create_vm": "15s"}})).To(Succeed())
		hasty := &director.Director{CPI: w.CPI, Config: config}
		response, err := hasty.Call(ctx, "create_vm", w.namespace, w.stemcell(ctx, os.Getenv("E2E_STEMCELL")), map[string]any{}, manual("203.0.113.7"), []string{}, map[string]any{})
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Error).NotTo(BeNil())
		Expect(response.Error.Type).To(Equal("Bosh::Clouds::VMCreationFailed"))
		Expect(response.Error.Message).To(ContainSubstring("it asked for 203.0.113.7 (network default)"))
		Expect(response.Error.Message).To(MatchRegexp(`FailedCreatePodSandBox: .*plugin type="calico".*configured pool`))
		left, err := w.embedded.ControlPlane.Kubectl(ctx, "get", "-n", w.namespace, "pods,secrets", "-o", "name")
		Expect(err).NotTo(HaveOccurred())
		Expect(left).To(BeEmpty())
	}, NodeTimeout(longTest))

	It("is waited for while a Pod that ends still holds it", func(ctx context.Context) {
		address := newAddress()
		holder := w.holder(ctx, address)
		Expect(w.cluster.CoreV1().Pods(w.namespace).Delete(ctx, holder, metav1.DeleteOptions{})).To(Succeed())
		w.must(ctx, "create_vm", w.namespace, w.stemcell(ctx, os.Getenv("E2E_STEMCELL")), map[string]any{}, manual(address), []string{}, map[string]any{})
		m := &machine{w: w, cid: "agent-" + w.namespace}
		Expect(m.pod(ctx).Status.PodIP).To(Equal(address))
		events, err := w.cluster.CoreV1().Events(w.namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + m.cid})
		Expect(err).NotTo(HaveOccurred())
		Expect(events.Items).To(ContainElement(HaveField("Reason", "FailedCreatePodSandBox")), "the address was still held")
	}, NodeTimeout(longTest))
})

// holder is a Pod with this address that takes its whole grace period to end.
func (w *world) holder(ctx context.Context, address string) string {
	GinkgoHelper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "holder", Annotations: map[string]string{"cni.projectcalico.org/ipAddrs": `["` + address + `"]`}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(8)),
			Containers: []corev1.Container{{Name: "holder", Image: embedded.BusyboxImage, ImagePullPolicy: corev1.PullIfNotPresent,
				Command: []string{"sh", "-c", "trap '' TERM; while true; do sleep 1; done"},
				// As a machine's: Debian's and a self-built runc differ in what they can confine.
				SecurityContext: &corev1.SecurityContext{Privileged: new(true)}}},
		},
	}
	_, err := w.cluster.CoreV1().Pods(w.namespace).Create(ctx, pod, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	Eventually(func(g Gomega) {
		pod, err := w.cluster.CoreV1().Pods(w.namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pod.Status.Phase).To(Equal(corev1.PodRunning))
		g.Expect(pod.Status.PodIP).To(Equal(address))
	}).WithContext(ctx).Should(Succeed())
	return pod.Name
}

func dynamic() map[string]any {
	return map[string]any{"default": map[string]any{"type": "dynamic", "dns": []string{}, "default": []string{"dns", "gateway"}, "cloud_properties": map[string]any{}}}
}

// seenBy opens a TCP connection to the other machine's address and returns the address that the other
// machine sees it come from.
func (m *machine) seenBy(ctx context.Context, other *machine) string {
	GinkgoHelper()
	other.run(ctx, `setsid perl -MIO::Socket::INET -e '
		$s = IO::Socket::INET->new(Listen => 1, LocalPort => 7777, ReuseAddr => 1) or die $!;
		$c = $s->accept; print $c $c->peerhost' </dev/null >/dev/null 2>&1 &`)
	var seen string
	Eventually(func() (err error) {
		seen, err = m.try(ctx, "exec 3<>/dev/tcp/"+other.address+"/7777 && cat <&3")
		return err
	}).WithContext(ctx).Should(Succeed())
	return seen
}

// killContainer kills PID 1 of the machine.
func (m *machine) killContainer(ctx context.Context) {
	GinkgoHelper()
	_, id, _ := strings.Cut(m.pod(ctx).Status.ContainerStatuses[0].ContainerID, "://")
	_, err := m.w.embedded.Nodes[0].Ctr(ctx, "tasks", "kill", "--signal", "SIGKILL", id)
	Expect(err).NotTo(HaveOccurred())
}

// killSandbox kills the pause process, which keeps the Pod's network, as a reboot of the node does.
func (m *machine) killSandbox(ctx context.Context) {
	GinkgoHelper()
	before := m.sandbox(ctx)
	_, err := m.w.embedded.Nodes[0].Ctr(ctx, "tasks", "kill", "--signal", "SIGKILL", before)
	Expect(err).NotTo(HaveOccurred())
	Eventually(m.sandbox).WithContext(ctx).ShouldNot(Or(BeEmpty(), Equal(before)), "the kubelet makes another")
}

// sandbox returns the id of the Pod's running sandbox; empty while there is none.
func (m *machine) sandbox(ctx context.Context) string {
	GinkgoHelper()
	node := m.w.embedded.Nodes[0]
	sandboxes, err := node.Ctr(ctx, "containers", "list", "--quiet",
		fmt.Sprintf(`labels."io.cri-containerd.kind"==sandbox,labels."io.kubernetes.pod.uid"==%s`, m.pod(ctx).UID))
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

// keepsAddress expects the machine to come back at the same address, and its agent to answer there.
func (m *machine) keepsAddress(ctx context.Context, from func(context.Context)) {
	GinkgoHelper()
	before := m.identity(ctx)
	from(ctx)
	Eventually(func(g Gomega) {
		status := m.pod(ctx).Status.ContainerStatuses[0]
		g.Expect(status.RestartCount).To(BeNumerically(">", before.Restarts))
		g.Expect(status.Ready).To(BeTrue())
	}, 2*time.Minute).WithContext(ctx).Should(Succeed())
	m.awaitAgent(ctx)
	after := m.identity(ctx)
	Expect(after.Address).To(Equal(m.address))
	Expect(after.UID).To(Equal(before.UID))
	Expect(after.Container).NotTo(Equal(before.Container))
	Expect(after.Data).To(Equal(before.Data))
}
