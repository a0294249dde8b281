package install_test

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// lasting is a token that was issued and expires this long from now.
func lasting(issued, expires time.Duration) string {
	now := time.Now()
	claims := fmt.Sprintf(`{"iat":%d,"exp":%d}`, now.Add(issued).Unix(), now.Add(expires).Unix())
	return "header." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".signature"
}

var _ = Describe("A token that is requested for the node", func() {
	var (
		n        node
		requests []string
		answer   func(http.ResponseWriter)
	)
	gives := func(token string) func(http.ResponseWriter) {
		return func(to http.ResponseWriter) {
			to.WriteHeader(http.StatusCreated)
			_, _ = fmt.Fprintf(to, `{"kind":"TokenRequest","status":{"token":%q}}`, token)
		}
	}
	BeforeEach(func() {
		requests = nil
		server := httptest.NewTLSServer(http.HandlerFunc(func(to http.ResponseWriter, r *http.Request) {
			requests = append(requests, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization"))
			answer(to)
		}))
		DeferCleanup(server.Close)
		n = newNode(map[string]string{"10-pods.conflist": bridge})
		n.Server, n.TokenFor = server.URL, "shim/node"
		n.write(filepath.Join(n.ServiceAccount, "ca.crt"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	})

	It("is requested once, with the installer's own", func() {
		answer = gives(lasting(0, time.Hour))
		Expect(n.install()).To(Succeed())
		Expect(n.Install(context.Background())).To(BeEmpty())
		Expect(n.verify()).To(Succeed())
		Expect(requests).To(HaveExactElements("POST /api/v1/namespaces/shim/serviceaccounts/node/token Bearer " + token))
		Expect(read(n.kubeconfig())).NotTo(ContainSubstring(`"` + token + `"`))
	})

	It("is renewed after half of its life", func() {
		answer = gives(lasting(-40*time.Minute, 20*time.Minute))
		Expect(n.install()).To(Succeed())
		Expect(n.verify()).To(Succeed())
		renewed := lasting(0, time.Hour)
		answer = gives(renewed)
		Expect(n.Install(context.Background())).To(HaveExactElements(n.kubeconfig()))
		Expect(read(n.kubeconfig())).To(ContainSubstring(renewed))
	})

	It("stays when it cannot be renewed, and the error says what the API server said", func() {
		old := lasting(-40*time.Minute, 20*time.Minute)
		answer = gives(old)
		Expect(n.install()).To(Succeed())
		answer = func(to http.ResponseWriter) {
			to.WriteHeader(http.StatusForbidden)
			_, _ = fmt.Fprint(to, `{"kind":"Status","status":"Failure","message":"no right"}`)
		}
		Expect(n.install()).To(MatchError(SatisfyAll(ContainSubstring("shim/node"), ContainSubstring("403 Forbidden: no right"))))
		Expect(read(n.kubeconfig())).To(ContainSubstring(old))
		Expect(n.verify()).To(Succeed())
	})

	It("that is over is not up to date", func() {
		answer = gives(lasting(-time.Hour, -time.Minute))
		Expect(n.install()).To(Succeed())
		Expect(n.verify()).To(MatchError(ContainSubstring("its token is over")))
	})
})
