//go:build e2e

package e2e

import (
	"context"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// listenerJobScript starts a job that listens on a port.
const listenerJobScript = `perl -MIO::Socket::INET -e '
	my $listening = IO::Socket::INET->new(LocalPort => 8080, Listen => 5, ReuseAddr => 1) or die;
	while (my $client = $listening->accept) { close $client }' </dev/null >/dev/null 2>&1 & echo $! >/var/vcap/data/listener`

// readyAddresses returns a function that returns the addresses to which the Service sends traffic.
func (env *testEnv) readyAddresses(ctx context.Context, service string) func(Gomega) []string {
	return func(g Gomega) []string {
		addresses, err := env.listReadyAddresses(ctx, service)
		g.Expect(err).NotTo(HaveOccurred())
		return addresses
	}
}

var _ = Describe("A VM behind a Service, without a readiness_probe", Label("vms"), func() {
	DescribeTable("receives traffic from the first start of its jobs, while the director has not stopped them", func(ctx context.Context, stemcell string) {
		env := newDirectorEnv(ctx, stemcell)
		properties := map[string]any{"services": []any{map[string]any{"name": "web", "ports": []any{8080}}}}
		vm := env.createVMFromSpec(ctx, vmSpec{stemcell: env.stemcell, bus: env.bus, properties: properties})
		readyAddresses := env.readyAddresses(ctx, "web")
		Expect(readyAddresses(Default)).To(BeEmpty(), "the jobs have not been started")
		vm.callAgent(ctx, "start")
		Eventually(readyAddresses).WithContext(ctx).Should(ConsistOf(vm.address))
		vm.callAgent(ctx, "stop")
		Eventually(readyAddresses).WithContext(ctx).Should(BeEmpty())
		vm.killInit(ctx)
		vm.waitForAgent(ctx)
		Expect(readyAddresses(Default)).To(BeEmpty(), "the jobs stay stopped after a restart")
		vm.callAgent(ctx, "start")
		Eventually(readyAddresses).WithContext(ctx).Should(ConsistOf(vm.address))
	}, stemcellEntries("extended"))
})

var _ = Describe("A VM with a readiness_probe", Label("vms"), func() {
	It("is created before its job listens, and receives the Service's traffic only while the job listens", func(ctx context.Context) {
		env := newTestEnv(ctx)
		vm := env.createVMFromStemcell(ctx, os.Getenv("E2E_STEMCELL"), map[string]any{
			"services":        []any{map[string]any{"name": "web", "ports": []any{8080}}},
			"readiness_probe": map[string]any{"tcpSocket": map[string]any{"port": 8080}, "periodSeconds": 1, "failureThreshold": 1},
		})
		readyAddresses := env.readyAddresses(ctx, "web")
		Expect(readyAddresses(Default)).To(BeEmpty())
		vm.run(ctx, listenerJobScript)
		Eventually(readyAddresses).WithContext(ctx).Should(ConsistOf(vm.address))
		vm.run(ctx, "kill $(cat /var/vcap/data/listener)")
		Eventually(readyAddresses).WithContext(ctx).Should(BeEmpty())
		env.mustCall(ctx, "reboot_vm", vm.cid)
		env.mustCall(ctx, "delete_vm", vm.cid)
	}, NodeTimeout(longTest))
})
