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

	"bosh-kubernetes-cpi/test/embedded"
)

// What create_network makes, with the real Calico: its schema takes the object, and its address manager
// gives addresses of it to Pods that ask.
var _ = Describe("A network that BOSH manages", Label("networks"), func() {
	number := strings.TrimPrefix(embedded.BOSHNetworkPrefix, "10.")

	DescribeTable("keeps its range for machines that ask for it", func(ctx context.Context, network, address, block string, properties map[string]any) {
		env := newTestEnv(ctx)
		var answer []any
		Expect(json.Unmarshal(env.mustCall(ctx, "create_network", map[string]any{
			"type": "manual", "range": network, "cloud_properties": properties,
		}).Result, &answer)).To(Succeed())
		Expect(answer).To(HaveLen(3))
		cid := answer[0].(string)
		DeferCleanup(func(ctx context.Context) { // the machines end after this, which Calico allows
			_, _ = env.Call(ctx, "delete_network", cid)
		})

		env.mustCall(ctx, "create_vm", env.namespace, env.createStemcell(ctx, os.Getenv("E2E_STEMCELL")), map[string]any{}, manualNetwork(address), []string{}, map[string]any{})
		vm := &testVM{env: env, cid: "agent-" + env.namespace, address: address}
		Expect(vm.pod(ctx).Status.PodIP).To(Equal(address))
		blocks, err := env.embedded.ControlPlane.Kubectl(ctx, "get", "ipamblocks", "-o", "jsonpath={.items[*].spec.cidr}")
		Expect(err).NotTo(HaveOccurred())
		Expect(blocks).To(ContainSubstring(block))
		other, err := env.probePodIP(ctx, "", "")
		Expect(err).NotTo(HaveOccurred())
		Expect(other).NotTo(HavePrefix(block[:strings.LastIndex(block, ".")]), "a Pod that asks for none")

		env.mustCall(ctx, "delete_vm", vm.cid)
		env.mustCall(ctx, "delete_network", cid)
		Expect(env.mustFail(ctx, "delete_network", cid).Type).To(Equal("Bosh::Clouds::NetworkNotFound"))
	},
		Entry("as a pool of its own", NodeTimeout(longTest), fmt.Sprintf("198.19.%s.0/24", number), fmt.Sprintf("198.19.%s.20", number),
			fmt.Sprintf("198.19.%s.16/28", number), map[string]any{"calico": "ip_pool", "ip_pool": map[string]any{"ipip_mode": "Never", "vxlan_mode": "Never", "block_size": 28}}),
		Entry("as a part of a pool", NodeTimeout(longTest), embedded.BOSHNetworkPrefix+".99.0/24", embedded.BOSHNetworkPrefix+".99.20",
			embedded.BOSHNetworkPrefix+".99.0/26", map[string]any{"calico": "ip_reservation"}),
	)

	It("must not overlap a pool of Calico's", func(ctx context.Context) {
		env := newTestEnv(ctx)
		failed := env.mustFail(ctx, "create_network", map[string]any{"range": embedded.BOSHNetworkPrefix + ".99.0/24", "cloud_properties": map[string]any{"calico": "ip_pool"}})
		Expect(failed.Message).To(ContainSubstring("of Calico's IPPool pods"))
	})
})
