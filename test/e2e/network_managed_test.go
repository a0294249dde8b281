//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/harness/embedded"
)

// Uses the real Calico. Its schema must accept the objects of create_network, and its IPAM must assign their addresses on request.
var _ = Describe("A managed network", Label("networks"), func() {
	number := strings.TrimPrefix(embedded.BOSHNetworkPrefix, "10.")

	DescribeTable("reserves its range for VMs that request an address", func(ctx context.Context, network, address, block string, properties map[string]any) {
		env := newTestEnv(ctx)
		var result []any
		Expect(json.Unmarshal(env.mustCall(ctx, "create_network", map[string]any{
			"type": "manual", "range": network, "cloud_properties": properties,
		}).Result, &result)).To(Succeed())
		Expect(result).To(HaveLen(3))
		cid := result[0].(string)
		DeferCleanup(func(ctx context.Context) { // before the VMs are deleted; Calico allows this
			_, _ = env.Call(ctx, "delete_network", cid)
		})

		env.mustCall(ctx, "create_vm", env.namespace, env.createStemcell(ctx, os.Getenv("E2E_STEMCELL")), map[string]any{}, manualNetwork(address), []string{}, map[string]any{})
		vm := &testVM{env: env, cid: "agent-" + env.namespace, address: address}
		Expect(vm.pod(ctx).Status.PodIP).To(Equal(address))
		blocks, err := env.embedded.ControlPlane.Kubectl(ctx, "get", "ipamblocks", "-o", "jsonpath={.items[*].spec.cidr}")
		Expect(err).NotTo(HaveOccurred())
		Expect(blocks).To(ContainSubstring(block))
		otherIP, err := env.probePodIP(ctx, "", "")
		Expect(err).NotTo(HaveOccurred())
		Expect(otherIP).NotTo(HavePrefix(block[:strings.LastIndex(block, ".")]), "a Pod without a request")

		env.mustCall(ctx, "delete_vm", vm.cid)
		env.mustCall(ctx, "delete_network", cid)
		Expect(env.mustFail(ctx, "delete_network", cid).Type).To(Equal("Bosh::Clouds::NetworkNotFound"))
	},
		Entry("with a new IPPool", NodeTimeout(longTest), fmt.Sprintf("198.19.%s.0/24", number), fmt.Sprintf("198.19.%s.20", number),
			fmt.Sprintf("198.19.%s.16/28", number), map[string]any{"calico": "ip_pool", "ip_pool": map[string]any{"ipip_mode": "Never", "vxlan_mode": "Never", "block_size": 28}}),
		Entry("with an IPReservation in an existing IPPool", NodeTimeout(longTest), embedded.BOSHNetworkPrefix+".99.0/24", embedded.BOSHNetworkPrefix+".99.20",
			embedded.BOSHNetworkPrefix+".99.0/26", map[string]any{"calico": "ip_reservation"}),
	)

	It("must not overlap an existing IPPool", func(ctx context.Context) {
		env := newTestEnv(ctx)
		createErr := env.mustFail(ctx, "create_network", map[string]any{"range": embedded.BOSHNetworkPrefix + ".99.0/24", "cloud_properties": map[string]any{"calico": "ip_pool"}})
		Expect(createErr.Message).To(ContainSubstring("of Calico's IPPool pods"))
	})
})
