package network

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/test/harness/memoryapi"
)

var _ = Describe("Managed networks", func() {
	var api *memoryapi.Server
	BeforeEach(func() {
		api = memoryapi.Start()
		DeferCleanup(api.Close)
	})

	// session returns the session of a call of this director.
	session := func(ctx context.Context, director string) *Session {
		GinkgoHelper()
		client, err := kube.NewForConfig(api.Config(), "bosh", 0)
		Expect(err).NotTo(HaveOccurred())
		return &Session{&call.Call{Ctx: ctx, Client: client, ID: call.NewID(), Director: director}}
	}
	subnet := func(cidr, properties string) Subnet {
		return Subnet{Type: Manual, Range: cidr, CloudProperties: json.RawMessage(properties)}
	}
	const pool, reservation = `{"calico": "ip_pool"}`, `{"calico": "ip_reservation"}`

	DescribeTable("are created, created again with the same result, and deleted as", func(ctx context.Context, resource, properties string) {
		result, err := session(ctx, "d").Create(subnet("10.1.0.0/16", properties))
		Expect(err).NotTo(HaveOccurred())
		cid, _ := result[0].(string)
		Expect(api.Names(resource)).To(ConsistOf(cid))
		Expect(result[1]).To(Equal(subnetAddresses{Range: "10.1.0.0/16", Gateway: "10.1.0.1", Reserved: []string{}}))
		Expect(session(ctx, "d").Create(subnet("10.1.0.0/16", properties))).To(Equal(result))
		Expect(session(ctx, "other").Delete(cid)).To(Satisfy(call.CodeNetworkNotFound.Is))
		Expect(session(ctx, "d").Delete(cid)).To(Succeed())
		Expect(api.Names(resource)).To(BeEmpty())
		Expect(session(ctx, "d").Delete(cid)).To(Satisfy(call.CodeNetworkNotFound.Is))
	},
		Entry("IPPools", "ippools", pool),
		Entry("IPReservations", "ipreservations", reservation),
	)

	DescribeTable("are rejected before anything is created if", func(ctx context.Context, code call.Code, message string, invalid Subnet) {
		_, err := session(ctx, "d").Create(invalid)
		Expect(err).To(And(Satisfy(code.Is), MatchError(ContainSubstring(message))))
		Expect(api.Requests()).To(BeEmpty())
	},
		Entry("properties are invalid", call.CodeInvalidProperty, "cloud_properties of the subnet", subnet("10.1.0.0/16", `[]`)),
		Entry("the type is dynamic", call.CodeManagedNetworkUnsupported, "use type: manual", Subnet{Type: Dynamic}),
		Entry("the kind is missing", call.CodeManagedNetworkUnsupported, "set it to ip_pool or ip_reservation", subnet("10.1.0.0/16", `{}`)),
		Entry("the kind is unknown", call.CodeInvalidProperty, `"pool" is not valid`, subnet("10.1.0.0/16", `{"calico": "pool"}`)),
		Entry("the range is missing", call.CodeManagedNetworkUnsupported, "set range", subnet("", pool)),
		Entry("the range has host bits", call.CodeInvalidProperty, "is not a CIDR range", subnet("10.1.0.1/16", pool)),
		Entry("the gateway is in another range", call.CodeInvalidProperty, "is not an address in range",
			Subnet{Range: "10.1.0.0/16", Gateway: "10.2.0.1", CloudProperties: json.RawMessage(pool)}),
	)

	It("do not overlap", func(ctx context.Context) {
		_, err := session(ctx, "d").Create(subnet("10.1.0.0/16", pool))
		Expect(err).NotTo(HaveOccurred())
		_, err = session(ctx, "d").Create(subnet("10.1.2.0/24", pool))
		Expect(err).To(MatchError(ContainSubstring("overlaps range 10.1.0.0/16")))
	})

	It("do not replace a network of another director, or with other properties", func(ctx context.Context) {
		_, err := session(ctx, "d").Create(subnet("10.1.0.0/16", pool))
		Expect(err).NotTo(HaveOccurred())
		_, err = session(ctx, "other").Create(subnet("10.1.0.0/16", pool))
		Expect(err).To(MatchError(ContainSubstring("does not belong to this director")))
		_, err = session(ctx, "d").Create(subnet("10.1.0.0/16", `{"calico": "ip_pool", "ip_pool": {"block_size": 28}}`))
		Expect(err).To(MatchError(ContainSubstring("already exists with other properties")))
	})

	It("require Calico", func(ctx context.Context) {
		api.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
			if strings.Contains(r.URL.Path, "projectcalico") {
				http.NotFound(w, r)
			}
			return strings.Contains(r.URL.Path, "projectcalico")
		}
		_, err := session(ctx, "d").Create(subnet("10.1.0.0/16", reservation))
		Expect(err).To(And(Satisfy(call.CodeManagedNetworkUnsupported.Is), MatchError(ContainSubstring("is not installed"))))
	})

	It("that this CPI did not create are reported as not found", func(ctx context.Context) {
		Expect(session(ctx, "d").Delete("subnet-123")).To(Satisfy(call.CodeNetworkNotFound.Is))
	})
})
