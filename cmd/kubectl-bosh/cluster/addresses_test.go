package cluster

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"

	"bosh-kubernetes-cpi/kube"
)

func TestCluster(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "cluster")
}

var _ = Describe("FindFreeServiceAddress", func() {
	It("reports a range without a candidate", func(ctx context.Context) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"kind":"ServiceList","apiVersion":"v1","metadata":{},"items":[]}`))
		}))
		DeferCleanup(server.Close)
		config := &rest.Config{Host: server.URL}
		client, err := kube.NewForConfig(config, "bosh", retryTimeout)
		Expect(err).NotTo(HaveOccurred())
		target, err := Open(client, config, "")
		Expect(err).NotTo(HaveOccurred())
		inspection := &Inspection{ServiceRanges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/28")}}
		_, err = target.FindFreeServiceAddress(ctx, inspection)
		Expect(err).To(MatchError("no free Service address in 10.0.0.0/28; set --address"))
	})
})
