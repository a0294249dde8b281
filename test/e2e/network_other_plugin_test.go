//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/harness/embedded"
)

// Uses a node with the network plugins bridge and host-local, which ignore annotations. The CPI must report that, and the shim must
// assign the addresses. Calico's configuration stays on the node, with a lower priority.
var _ = Describe("A network plugin that ignores annotations", Label("networks", "extended"), Ordered, Serial, func() {
	var (
		env    *testEnv
		subnet = otherSubnet + ".0/24"
	)
	BeforeAll(func(ctx context.Context) {
		env = newTestEnv(ctx)
		env.useForeignCNI(ctx)
	}, NodeTimeout(longTest))

	It("makes create_vm fail with the requested and the assigned address in the error, and leaves no objects", func(ctx context.Context) {
		createErr := env.mustFail(ctx, "create_vm", env.namespace, env.createStemcell(ctx, os.Getenv("E2E_STEMCELL")), map[string]any{}, manualNetwork(newAddress()), []string{}, map[string]any{})
		Expect(createErr.Type).To(Equal("Bosh::Clouds::VMCreationFailed"))
		Expect(createErr.Message).To(MatchRegexp(`network default requests %s\.\d+\.\d+, but the Pod has %s\.\d+; `,
			strings.ReplaceAll(embedded.BOSHNetworkPrefix, ".", `\.`), strings.ReplaceAll(otherSubnet, ".", `\.`)))
		Expect(createErr.Message).To(ContainSubstring("honors kubernetes.network.address_annotations"))
		remaining, err := env.embedded.ControlPlane.Kubectl(ctx, "get", "-n", env.namespace, "pods,secrets,persistentvolumeclaims", "-o", "name")
		Expect(err).NotTo(HaveOccurred())
		Expect(remaining).To(BeEmpty())
	}, NodeTimeout(longTest))

	It("assigns requested addresses behind the DaemonSet's shim, and VMs reach each other at them", func(ctx context.Context) {
		shim := env.newShimManifests(subnet)
		shim.install(ctx)
		Eventually(env.probePodIP).WithArguments("bosh.cloudfoundry.org/ip-address", otherSubnet+".77").WithContext(ctx).Should(Equal(otherSubnet + ".77"))
		var vms []*testVM
		for i, address := range []string{otherSubnet + ".101", otherSubnet + ".102"} {
			agentID := fmt.Sprintf("%s-shim-%d", env.namespace, i)
			env.mustCall(ctx, "create_vm", agentID, env.createStemcell(ctx, os.Getenv("E2E_STEMCELL")), map[string]any{}, manualNetwork(address), []string{}, map[string]any{})
			vm := &testVM{env: env, cid: "agent-" + agentID, address: address}
			Expect(vm.pod(ctx).Status.PodIP).To(Equal(address))
			vms = append(vms, vm)
		}
		Expect(vms[0].sourceAddressAt(ctx, vms[1])).To(Equal(vms[0].address))
		for _, vm := range vms { // while the network that they use exists
			env.mustCall(ctx, "delete_vm", vm.cid)
		}

		By("upgrading the shim, without removing its files")
		Expect(shim.upgrade(ctx)).To(BeZero(), "how often a file was not found")
		Expect(env.probePodIP(ctx, "bosh.cloudfoundry.org/ip-address", otherSubnet+".78")).To(Equal(otherSubnet + ".78"))

		By("uninstalling the shim, and starting Pods without it")
		shim.uninstall(ctx)
		Eventually(env.probePodIP).WithArguments("bosh.cloudfoundry.org/ip-address", otherSubnet+".79").WithContext(ctx).
			Should(SatisfyAll(HavePrefix(otherSubnet), Not(Equal(otherSubnet+".79"))))
	}, NodeTimeout(longTest))
})

var _ = Describe("Calico behind the CNI shim", Label("networks", "extended"), Serial, func() {
	It("gets all of its configuration, and assigns the requested address", func(ctx context.Context) {
		env := newTestEnv(ctx)
		env.newShimManifests("").install(ctx)
		address := newAddress()
		Eventually(env.probePodIP).WithArguments("bosh.cloudfoundry.org/ip-address", address).WithContext(ctx).Should(Equal(address))
	}, NodeTimeout(longTest))
})

// otherSubnet is the prefix of the other plugin's addresses. otherBridge is its bridge, in the host's network namespace.
var (
	otherSubnet = fmt.Sprintf("198.18.%s", strings.TrimPrefix(embedded.BOSHNetworkPrefix, "10."))
	otherBridge = "boshcni" + strings.TrimPrefix(embedded.BOSHNetworkPrefix, "10.")
)

// useForeignCNI replaces Calico with bridge and host-local until the specs of the container finish.
func (env *testEnv) useForeignCNI(ctx context.Context) {
	GinkgoHelper()
	node := env.embedded.Nodes[0]
	raw, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": "other", "plugins": []any{map[string]any{
		"type": "bridge", "bridge": otherBridge, "isGateway": true,
		"ipam": map[string]any{"type": "host-local", "dataDir": filepath.Join(node.Dir, "host-local"),
			"ranges": []any{[]any{map[string]any{"subnet": otherSubnet + ".0/24", "rangeStart": otherSubnet + ".10"}}}},
	}}})
	Expect(err).NotTo(HaveOccurred())
	path := filepath.Join(node.Dir, "cni", "05-other.conflist")
	DeferCleanup(func(ctx context.Context) {
		Expect(os.Remove(path)).To(Succeed())
		Eventually(env.probePodIP).WithArguments("", "").WithContext(ctx).ShouldNot(HavePrefix(otherSubnet), "containerd uses Calico again")
		_, err := embedded.Run(ctx, "ip", "link", "delete", otherBridge)
		Expect(err).NotTo(HaveOccurred())
		Expect(os.RemoveAll(filepath.Join(node.Dir, "host-local"))).To(Succeed())
	})
	Expect(os.WriteFile(path+".new", raw, 0o644)).To(Succeed())
	Expect(os.Rename(path+".new", path)).To(Succeed())
	Eventually(env.probePodIP).WithArguments("", "").WithContext(ctx).Should(HavePrefix(otherSubnet), "containerd uses the other network")
}

// probePodIP creates a Pod, deletes it, and returns its address.
func (env *testEnv) probePodIP(ctx context.Context, annotation, value string) (string, error) {
	pods := env.cluster.CoreV1().Pods(env.namespace)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("probe-%d", time.Now().UnixNano())},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(0)),
			Containers: []corev1.Container{{Name: "probe", Image: embedded.PauseImage, ImagePullPolicy: corev1.PullNever,
				SecurityContext: &corev1.SecurityContext{Privileged: new(true)}}},
		},
	}
	if annotation != "" {
		pod.Annotations = map[string]string{annotation: value}
	}
	if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	var address string
	err := embedded.WaitUntil(ctx, 20*time.Second, pod.Name+" to have an address", func(ctx context.Context) (bool, error) {
		current, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		if err == nil {
			address = current.Status.PodIP
		}
		return address != "", err
	})
	if deleteErr := pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))}); deleteErr != nil {
		return "", deleteErr
	}
	waitErr := embedded.WaitUntil(ctx, 30*time.Second, pod.Name+" to be deleted", func(ctx context.Context) (bool, error) {
		remaining, err := pods.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + pod.Name})
		return err == nil && len(remaining.Items) == 0, err
	})
	if waitErr != nil {
		return "", waitErr
	}
	return address, err
}
