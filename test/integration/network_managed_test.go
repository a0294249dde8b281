package integration

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// calicoResource returns a minimal CRD for a kind of Calico. The tests on a real node use Calico's CRDs.
func calicoResource(kind string) string {
	singular := strings.ToLower(kind)
	return fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[2]ss.crd.projectcalico.org}
spec:
  group: crd.projectcalico.org
  scope: Cluster
  names: {kind: %[1]s, plural: %[2]ss, singular: %[2]s, listKind: %[1]sList}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`, kind, singular)
}

var _ = Describe("A managed network", Ordered, func() {
	var env testEnv
	BeforeAll(func(ctx context.Context) { env = newTestEnv(ctx) })

	subnet := func(cidr string, properties map[string]any) map[string]any {
		return map[string]any{"type": "manual", "range": cidr, "gateway": strings.Replace(cidr, ".0/24", ".1", 1), "cloud_properties": properties}
	}
	pool := map[string]any{"calico": "ip_pool", "ip_pool": map[string]any{"vxlan_mode": "CrossSubnet", "nat_outgoing": true}, "zone": "z1"}
	reservation := map[string]any{"calico": "ip_reservation"}
	listCalicoResources := func(ctx context.Context) []string {
		GinkgoHelper()
		out, err := plane.Kubectl(ctx, "get", "ippools,ipreservations", "-o", "name")
		Expect(err).NotTo(HaveOccurred())
		return strings.Fields(out)
	}

	It("is not supported without a calico property", func(ctx context.Context) {
		proxy.Reset(nil)
		Expect(env.mustFail(ctx, "create_network", subnet("10.70.0.0/24", map[string]any{})).Type).To(Equal("Bosh::Clouds::NotSupported"))
		Expect(env.mustFail(ctx, "delete_network", "vlan-7").Type).To(Equal("Bosh::Clouds::NetworkNotFound"))
		Expect(proxy.Requests()).To(BeEmpty())
	})

	DescribeTable("is rejected if the subnet", func(ctx context.Context, wantType string, network map[string]any, message string) {
		failed := env.mustFail(ctx, "create_network", network)
		Expect(failed.Type).To(Equal(wantType))
		Expect(failed.Message).To(ContainSubstring(message))
	},
		Entry("has no range", "Bosh::Clouds::NotSupported", map[string]any{"netmask_bits": 24, "cloud_properties": reservation}, "the subnet has no range"),
		Entry("has an invalid range", "Bosh::Clouds::CpiError", map[string]any{"range": "10.0.0.7/24", "cloud_properties": reservation}, "10.0.0.7/24"),
		Entry("has a gateway outside of its range", "Bosh::Clouds::CpiError", map[string]any{"range": "10.0.0.0/24", "gateway": "10.0.1.1", "cloud_properties": reservation}, "gateway"),
		Entry("has an unknown value of the property calico", "Bosh::Clouds::CpiError", map[string]any{"range": "10.0.0.0/24", "cloud_properties": map[string]any{"calico": "pool"}}, `"pool"`),
		Entry("is dynamic", "Bosh::Clouds::NotSupported", map[string]any{"type": "dynamic", "cloud_properties": reservation}, "dynamic"),
	)

	It("is rejected in a cluster without Calico", func(ctx context.Context) {
		for _, properties := range []map[string]any{pool, reservation} {
			failed := env.mustFail(ctx, "create_network", subnet("10.70.0.0/24", properties))
			Expect(failed.Type).To(Equal("Bosh::Clouds::NotSupported"))
			Expect(failed.Message).To(ContainSubstring("the Calico API"))
		}
	})

	Context("with Calico", func() {
		BeforeAll(func(ctx context.Context) {
			Expect(plane.Apply(ctx, calicoResource("IPPool")+"---"+calicoResource("IPReservation"))).To(Succeed())
			_, err := plane.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
			Expect(err).NotTo(HaveOccurred())
			Eventually(func() error {
				_, err := plane.Kubectl(ctx, "get", "ippools,ipreservations")
				return err
			}).WithContext(ctx).Should(Succeed())
		})
		AfterEach(func(ctx context.Context) {
			_, err := plane.Kubectl(ctx, "delete", "ippools,ipreservations", "--all")
			Expect(err).NotTo(HaveOccurred())
		})

		It("is an IPPool that selects no node, until delete_network", func(ctx context.Context) {
			proxy.Reset(nil)
			response := env.mustCall(ctx, "create_network", subnet("10.70.0.0/24", pool))
			Expect(proxy.Requests()).To(HaveLen(2))
			Expect(response.Result).To(MatchJSON(`["bosh-pool-10-70-0-0-24", {"range": "10.70.0.0/24", "gateway": "10.70.0.1", "reserved": []},
				{"calico": "ip_pool", "ip_pool": {"vxlan_mode": "CrossSubnet", "nat_outgoing": true}, "zone": "z1"}]`))
			spec, err := plane.Kubectl(ctx, "get", "ippool", "bosh-pool-10-70-0-0-24", "-o", "jsonpath={.spec}")
			Expect(err).NotTo(HaveOccurred())
			Expect(spec).To(MatchJSON(`{"cidr": "10.70.0.0/24", "vxlanMode": "CrossSubnet", "natOutgoing": true, "nodeSelector": "!all()", "allowedUses": ["Workload"]}`))

			Expect(env.mustCall(ctx, "create_network", subnet("10.70.0.0/24", pool)).Result).To(MatchJSON(response.Result), "a retried call")
			env.mustCall(ctx, "delete_network", "bosh-pool-10-70-0-0-24")
			Expect(listCalicoResources(ctx)).To(BeEmpty())
			Expect(env.mustFail(ctx, "delete_network", "bosh-pool-10-70-0-0-24").Type).To(Equal("Bosh::Clouds::NetworkNotFound"))
		})

		It("is an IPReservation, until delete_network", func(ctx context.Context) {
			network := map[string]any{"type": "manual", "range": "fd00:70::/64", "cloud_properties": reservation}
			const cid = "bosh-reservation-fd00-0070-0000-0000-0000-0000-0000-0000-64"
			expected := `["` + cid + `", {"range": "fd00:70::/64", "gateway": "fd00:70::1", "reserved": []}, {"calico": "ip_reservation"}]`
			Expect(env.mustCall(ctx, "create_network", network).Result).To(MatchJSON(expected))
			Expect(env.mustCall(ctx, "create_network", network).Result).To(MatchJSON(expected), "a retried call")
			reserved, err := plane.Kubectl(ctx, "get", "ipreservation", cid, "-o", "jsonpath={.spec.reservedCIDRs}")
			Expect(err).NotTo(HaveOccurred())
			Expect(reserved).To(MatchJSON(`["fd00:70::/64"]`))
			env.mustCall(ctx, "delete_network", cid)
			Expect(listCalicoResources(ctx)).To(BeEmpty())
			Expect(env.mustFail(ctx, "delete_network", cid).Type).To(Equal("Bosh::Clouds::NetworkNotFound"))
		})

		It("does not overlap an existing pool, and does not change or delete another user's objects", func(ctx context.Context) {
			Expect(plane.Apply(ctx, `
apiVersion: crd.projectcalico.org/v1
kind: IPPool
metadata: {name: pods}
spec: {cidr: 10.70.0.0/16}
---
apiVersion: crd.projectcalico.org/v1
kind: IPPool
metadata: {name: bosh-pool-10-71-0-0-24}
spec: {cidr: 10.71.0.0/24}
`)).To(Succeed())
			Expect(env.mustFail(ctx, "create_network", subnet("10.70.0.0/24", pool)).Message).To(ContainSubstring("10.70.0.0/16 of Calico's IPPool pods"))
			Expect(env.mustFail(ctx, "create_network", subnet("10.71.0.0/24", pool)).Message).To(ContainSubstring("does not belong to this director"))
			Expect(env.mustFail(ctx, "delete_network", "bosh-pool-10-71-0-0-24").Type).To(Equal("Bosh::Clouds::NetworkNotFound"))
			Expect(listCalicoResources(ctx)).To(HaveLen(2))

			env.mustCall(ctx, "create_network", subnet("10.72.0.0/24", pool))
			Expect(env.mustFail(ctx, "create_network", subnet("10.72.0.0/24", map[string]any{"calico": "ip_pool"})).Message).To(ContainSubstring("with other properties"))
		})

		It("is created and deleted by retried calls after a call was killed at any request", func(ctx context.Context) {
			for name, properties := range map[string]map[string]any{"bosh-pool-10-73-0-0-24": pool, "bosh-reservation-10-73-0-0-24": reservation} {
				forEachRequest(1, func(n int) bool {
					interrupted := env.interruptCall(ctx, n, "create_network", subnet("10.73.0.0/24", properties))
					env.mustCall(ctx, "create_network", subnet("10.73.0.0/24", properties))
					Expect(listCalicoResources(ctx)).To(HaveLen(1))
					interrupted = env.interruptCall(ctx, n, "delete_network", name) || interrupted
					env.mustRetry(ctx, "NetworkNotFound", "delete_network", name)
					Expect(listCalicoResources(ctx)).To(BeEmpty())
					return interrupted
				})
			}
		})
	})
})
