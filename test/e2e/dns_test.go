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

	"bosh-kubernetes-cpi/test/embedded"
)

var _ = Describe("A machine's name servers", Label("networks"), func() {
	const address = "192.0.2.53"
	var (
		w       *world
		service string
	)
	BeforeEach(func(ctx context.Context) {
		w = newWorld(ctx)
		service = "database." + w.namespace + ".svc.cluster.local"
		w.serviceWithout(ctx, "database", address)
	})

	It("are its network's, and stay so when its container restarts", func(ctx context.Context) {
		m := w.createMachineOn(ctx, withDNS(newAddress(), embedded.ClusterDNS))
		for _, happens := range []func(context.Context){func(context.Context) {}, m.killContainer} {
			happens(ctx)
			Eventually(m.nameServers).WithContext(ctx).Should(Equal(embedded.ClusterDNS))
			Eventually(m.lookUp).WithContext(ctx).WithArguments(service).Should(Equal(address))
		}
	}, NodeTimeout(longTest))

	It("are the cluster's where its network names none", func(ctx context.Context) {
		m := w.createMachine(ctx)
		Expect(m.nameServers(ctx)).To(Equal(embedded.ClusterDNS))
		Expect(m.lookUp(ctx, "database")).To(Equal(address), "by the cluster's search domains")
	}, NodeTimeout(longTest))

	// As the job bosh-dns does it: an address of its own on loopback, itself before the other name servers in
	// resolv.conf, and those asked for what it does not know.
	It("may be one of its own before the cluster's, as BOSH DNS is", func(ctx context.Context) {
		m := w.createMachineOn(ctx, withDNS(newAddress(), embedded.ClusterDNS))
		Eventually(m.nameServers).WithContext(ctx).Should(Equal(embedded.ClusterDNS))
		m.copyProgram(ctx, "coredns", "/var/vcap/data/dns")
		m.run(ctx, `cat >/var/vcap/data/Corefile <<'END'
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
		Eventually(m.lookUp).WithContext(ctx).WithArguments("q-s0.web.default.cf.bosh").Should(Equal("192.0.2.9"))
		Expect(m.lookUp(ctx, service)).To(Equal(address))
	}, NodeTimeout(longTest))
})

// serviceWithout is a headless Service without a Pod: its one endpoint is the address.
func (w *world) serviceWithout(ctx context.Context, name, address string) {
	GinkgoHelper()
	_, err := w.cluster.CoreV1().Services(w.namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Port: 5432}}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	Expect(w.embedded.ControlPlane.Apply(ctx, `{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
		"metadata": {"name": "`+name+`", "namespace": "`+w.namespace+`", "labels": {"kubernetes.io/service-name": "`+name+`"}},
		"endpoints": [{"addresses": ["`+address+`"], "conditions": {"ready": true}}], "ports": [{"port": 5432}]}`)).To(Succeed())
}

func withDNS(address string, servers ...string) map[string]any {
	networks := manual(address)
	networks["default"].(map[string]any)["dns"] = servers
	return networks
}

func (m *machine) nameServers(ctx context.Context) (string, error) {
	return m.try(ctx, `awk '$1 == "nameserver" { printf "%s%s", separator, $2; separator = " " }' /etc/resolv.conf`)
}

// lookUp returns the address by the machine's own resolver.
func (m *machine) lookUp(ctx context.Context, name string) (string, error) {
	return m.try(ctx, "set -o pipefail; getent ahostsv4 "+name+" | awk 'NR == 1 { print $1 }'")
}

// copyProgram copies a static program of the tests' into the machine.
func (m *machine) copyProgram(ctx context.Context, name, target string) {
	GinkgoHelper()
	path, err := exec.LookPath(name)
	Expect(err).NotTo(HaveOccurred())
	out, err := m.w.embedded.ControlPlane.Kubectl(ctx, "cp", "-n", m.w.namespace, path, m.cid+":"+target)
	Expect(err).NotTo(HaveOccurred(), out)
	Expect(strings.TrimSpace(m.run(ctx, "chmod +x "+target))).To(BeEmpty())
}
