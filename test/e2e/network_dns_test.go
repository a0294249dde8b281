//go:build e2e

package e2e

import (
	"context"
	"os/exec"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/harness/embedded"
)

var _ = Describe("The name servers of a VM", Label("networks"), func() {
	const address = "192.0.2.53"
	var (
		env     *testEnv
		service string
	)
	BeforeEach(func(ctx context.Context) {
		env = newTestEnv(ctx)
		service = "database." + env.namespace + ".svc.cluster.local"
		env.createServiceFor(ctx, "database", address)
	})

	It("are those of its network, even after a restart of its container", func(ctx context.Context) {
		vm := env.createVMOnNetworks(ctx, manualNetworkWithDNS(newAddress(), embedded.ClusterDNS))
		for _, disrupt := range []func(context.Context){func(context.Context) {}, vm.killContainer} {
			disrupt(ctx)
			Eventually(vm.nameServers).WithContext(ctx).Should(Equal(embedded.ClusterDNS))
			Eventually(vm.resolve).WithContext(ctx).WithArguments(service).Should(Equal(address))
		}
	}, NodeTimeout(longTest))

	It("are those of the cluster if its network has none", func(ctx context.Context) {
		vm := env.createVM(ctx)
		Expect(vm.nameServers(ctx)).To(Equal(embedded.ClusterDNS))
		Expect(vm.resolve(ctx, "database")).To(Equal(address), "by the cluster's search domains")
	}, NodeTimeout(longTest))

	// Imitates the job bosh-dns. It listens on a loopback address, adds itself before the other name servers in resolv.conf, and
	// forwards unknown names to them.
	It("can include a local name server, like BOSH DNS", func(ctx context.Context) {
		vm := env.createVMOnNetworks(ctx, manualNetworkWithDNS(newAddress(), embedded.ClusterDNS))
		Eventually(vm.nameServers).WithContext(ctx).Should(Equal(embedded.ClusterDNS))
		vm.copyProgram(ctx, "coredns", "/var/vcap/data/dns")
		vm.run(ctx, `cat >/var/vcap/data/Corefile <<'END'
. {
  bind 169.254.0.2
  hosts {
    192.0.2.9 q-s0.web.default.cf.bosh
    fallthrough
  }
  forward . `+embedded.ClusterDNS+`
}
END
ip address add 169.254.0.2/32 dev lo
setsid /var/vcap/data/dns -conf /var/vcap/data/Corefile </dev/null >/var/vcap/data/dns.log 2>&1 &
sed -i '1i nameserver 169.254.0.2' /etc/resolv.conf`)
		Eventually(vm.resolve).WithContext(ctx).WithArguments("q-s0.web.default.cf.bosh").Should(Equal("192.0.2.9"))
		Expect(vm.resolve(ctx, service)).To(Equal(address))
	}, NodeTimeout(longTest))
})

// createServiceFor creates a headless Service without Pods. The address is its only endpoint.
func (env *testEnv) createServiceFor(ctx context.Context, name, address string) {
	GinkgoHelper()
	_, err := env.cluster.CoreV1().Services(env.namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Port: 5432}}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	Expect(env.embedded.ControlPlane.Apply(ctx, `{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
		"metadata": {"name": "`+name+`", "namespace": "`+env.namespace+`", "labels": {"kubernetes.io/service-name": "`+name+`"}},
		"endpoints": [{"addresses": ["`+address+`"], "conditions": {"ready": true}}], "ports": [{"port": 5432}]}`)).To(Succeed())
}

func manualNetworkWithDNS(address string, servers ...string) map[string]any {
	networks := manualNetwork(address)
	networks["default"].(map[string]any)["dns"] = servers
	return networks
}

func (vm *testVM) nameServers(ctx context.Context) (string, error) {
	return vm.tryRun(ctx, `awk '$1 == "nameserver" { printf "%s%s", separator, $2; separator = " " }' /etc/resolv.conf`)
}

// resolve returns the IPv4 address that the VM's resolver finds for the name.
func (vm *testVM) resolve(ctx context.Context, name string) (string, error) {
	return vm.tryRun(ctx, "set -o pipefail; getent ahostsv4 "+name+" | awk 'NR == 1 { print $1 }'")
}

// copyProgram copies a static program from $PATH into the VM.
func (vm *testVM) copyProgram(ctx context.Context, name, target string) {
	GinkgoHelper()
	path, err := exec.LookPath(name)
	Expect(err).NotTo(HaveOccurred())
	out, err := vm.env.embedded.ControlPlane.Kubectl(ctx, "cp", "-n", vm.env.namespace, path, vm.cid+":"+target)
	Expect(err).NotTo(HaveOccurred(), out)
	Expect(strings.TrimSpace(vm.run(ctx, "chmod +x "+target))).To(BeEmpty())
}
