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

// newToken returns a token that was issued and expires at the given offsets from now.
func newToken(issued, expires time.Duration) string {
	now := time.Now()
	claims := fmt.Sprintf(`{"iat":%d,"exp":%d}`, now.Add(issued).Unix(), now.Add(expires).Unix())
	return "header." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".signature"
}

var _ = Describe("A token requested for the node", func() {
	var (
		n        node
		requests []string
		respond  func(http.ResponseWriter)
	)
	respondWithToken := func(token string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusCreated)
			_, _ = fmt.Fprintf(w, `{"kind":"TokenRequest","status":{"token":%q}}`, token)
		}
	}
	BeforeEach(func() {
		requests = nil
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests = append(requests, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization"))
			respond(w)
		}))
		DeferCleanup(server.Close)
		n = newNode(map[string]string{"10-pods.conflist": bridgeNetwork})
		n.Server, n.TokenFor = server.URL, "shim/node"
		n.write(filepath.Join(n.ServiceAccount, "ca.crt"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	})

	It("is requested once, with the installer's token", func() {
		respond = respondWithToken(newToken(0, time.Hour))
		Expect(n.install()).To(Succeed())
		Expect(n.Install(context.Background())).To(BeEmpty())
		Expect(n.verify()).To(Succeed())
		Expect(requests).To(HaveExactElements("POST /api/v1/namespaces/shim/serviceaccounts/node/token Bearer " + token))
		Expect(readFile(n.kubeconfigPath())).NotTo(ContainSubstring(`"` + token + `"`))
	})

	It("is renewed after half of its lifetime", func() {
		respond = respondWithToken(newToken(-40*time.Minute, 20*time.Minute))
		Expect(n.install()).To(Succeed())
		Expect(n.verify()).To(Succeed())
		renewed := newToken(0, time.Hour)
		respond = respondWithToken(renewed)
		Expect(n.Install(context.Background())).To(HaveExactElements(n.kubeconfigPath()))
		Expect(readFile(n.kubeconfigPath())).To(ContainSubstring(renewed))
	})

	It("is kept if it cannot be renewed, and the error includes the message of the API server", func() {
		old := newToken(-40*time.Minute, 20*time.Minute)
		respond = respondWithToken(old)
		Expect(n.install()).To(Succeed())
		respond = func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = fmt.Fprint(w, `{"kind":"Status","status":"Failure","message":"no permission"}`)
		}
		Expect(n.install()).To(MatchError(SatisfyAll(ContainSubstring("shim/node"), ContainSubstring("403 Forbidden: no permission"))))
		Expect(readFile(n.kubeconfigPath())).To(ContainSubstring(old))
		Expect(n.verify()).To(Succeed())
	})

	It("makes Verify fail after it expires", func() {
		respond = respondWithToken(newToken(-time.Hour, -time.Minute))
		Expect(n.install()).To(Succeed())
		Expect(n.verify()).To(MatchError(ContainSubstring("its token is expired")))
	})
})
