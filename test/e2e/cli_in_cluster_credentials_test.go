//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"regexp"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/harness/director"
	"bosh-kubernetes-cpi/test/harness/embedded"
)

// applyRBAC creates the documented service account and its permissions in the namespace.
func (env *testEnv) applyRBAC(ctx context.Context) {
	GinkgoHelper()
	raw, err := os.ReadFile("../../manifests/rbac.yaml")
	Expect(err).NotTo(HaveOccurred())
	manifests := regexp.MustCompile(`(?m)([- ])bosh$`).ReplaceAllString(string(raw), "${1}"+env.namespace)
	kubectl := []string{"--kubeconfig", env.kubeconfig, "--namespace", env.namespace, "apply", "-f", "-"}
	out, err := embedded.RunInput(ctx, manifests, "kubectl", kubectl...)
	Expect(err).NotTo(HaveOccurred(), out)
	DeferCleanup(func(ctx context.Context) {
		_, err := env.embedded.ControlPlane.Kubectl(ctx, "delete", "clusterrole,clusterrolebinding", "bosh-cpi-"+env.namespace)
		Expect(err).NotTo(HaveOccurred())
	})
}

// newDirectorVM creates a VM with the service account and with name servers outside the cluster. It installs the CPI like a director's
// job, without a kubeconfig.
func newDirectorVM(ctx context.Context, stemcell string) *testVM {
	GinkgoHelper()
	env := newTestEnv(ctx)
	env.applyRBAC(ctx)
	networks := manualNetwork(newAddress())
	networks["default"].(map[string]any)["dns"] = []string{"8.8.8.8"}
	vm := env.createVMFromSpec(ctx, vmSpec{stemcell: stemcell, networks: networks, properties: map[string]any{"service_account": "bosh-cpi"}})
	program, err := os.ReadFile("../../bin/cpi")
	Expect(err).NotTo(HaveOccurred())
	vm.writeFile(ctx, "/var/vcap/packages/kubernetes_cpi/bin/cpi", string(program))
	vm.writeFile(ctx, "/var/vcap/jobs/kubernetes_cpi/config/cpi.json",
		fmt.Sprintf(`{"kubernetes": {"namespace": %q, "timeouts": {"request": "2s"}}, "agent": {"mbus": %q}}`, env.namespace, director.AgentMbus))
	return vm
}

// writeFile writes an executable file in the VM, and creates its directories.
func (vm *testVM) writeFile(ctx context.Context, path, content string) {
	GinkgoHelper()
	out, err := embedded.RunInput(ctx, content, "kubectl", "--kubeconfig", vm.env.kubeconfig, "exec", "--stdin", "--namespace", vm.env.namespace, vm.cid,
		"--", "bash", "-c", `mkdir -p "$(dirname "$1")" && cat >"$1" && chmod 0755 "$1"`, "put", path)
	Expect(err).NotTo(HaveOccurred(), out)
}

// hasVM calls has_vm of the CPI in the VM and returns the response. Like a director, it uses the user vcap and an empty environment.
func (vm *testVM) hasVM(ctx context.Context, cid string) (string, error) {
	request := fmt.Sprintf(`{"method": "has_vm", "arguments": [%q], "api_version": 2, "context": {"director_uuid": %q, "request_id": "cpi-1"}}`, cid, director.UUID)
	return vm.tryRun(ctx, `cd / && echo '`+request+`' | runuser -u vcap -- env -i /var/vcap/packages/kubernetes_cpi/bin/cpi \
		-configPath /var/vcap/jobs/kubernetes_cpi/config/cpi.json 2>/dev/null`)
}

var _ = Describe("The CPI on a director's VM with only the VM's service account", Label("remote-access"), func() {
	DescribeTable("finds the API server as vcap, without environment variables and without the cluster's name servers",
		func(ctx context.Context, stemcell string) {
			vm := newDirectorVM(ctx, os.Getenv(stemcell))
			Expect(vm.tryRun(ctx, "getent hosts kubernetes.default.svc")).Error().To(HaveOccurred(), "invalid test: the name servers know the cluster")
			Expect(vm.hasVM(ctx, vm.cid)).To(ContainSubstring(`"result":true`))
			Expect(vm.hasVM(ctx, "agent-none")).To(ContainSubstring(`"result":false`))
		},
		stemcellEntries("extended"))

	It("uses the new token after the kubelet renewed it", Label("extended"), Serial, func(ctx context.Context) {
		vm := newDirectorVM(ctx, os.Getenv("E2E_STEMCELL"))
		Expect(vm.hasVM(ctx, vm.cid)).To(ContainSubstring(`"result":true`))
		previous := vm.identity(ctx)
		// Deleting the service account invalidates its tokens. The kubelet requests new ones when it starts, or after 80 % of their hour.
		accounts := vm.env.cluster.CoreV1().ServiceAccounts(vm.env.namespace)
		Expect(accounts.Delete(ctx, "bosh-cpi", metav1.DeleteOptions{})).To(Succeed())
		_, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "bosh-cpi"}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(vm.hasVM).WithContext(ctx).WithArguments(vm.cid).Should(ContainSubstring("nauthorized"))
		node := vm.env.embedded.Nodes[0]
		Expect(node.Kubelet().Stop()).To(Succeed())
		Expect(node.StartKubelet(ctx)).To(Succeed())
		Eventually(vm.hasVM).WithContext(ctx).WithArguments(vm.cid).Should(ContainSubstring(`"result":true`))
		Expect(vm.identity(ctx)).To(Equal(previous))
	}, NodeTimeout(longTest))
})
