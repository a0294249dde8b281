package integration

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// certificateName is a name in the API server's certificate that does not resolve.
const certificateName = "kubernetes.default.svc"

// connectProxy is an HTTP proxy that opens tunnels (RFC 9110, CONNECT) to certificateName only.
type connectProxy struct {
	*httptest.Server
	tunnels atomic.Int32
}

func newConnectProxy() *connectProxy {
	p := &connectProxy{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, port, err := net.SplitHostPort(r.Host)
		if r.Method != http.MethodConnect || err != nil || host != certificateName {
			http.Error(w, "host not allowed", http.StatusForbidden)
			return
		}
		p.tunnels.Add(1)
		upstream, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer upstream.Close()
		w.WriteHeader(http.StatusOK)
		client, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer client.Close()
		go func() { _, _ = io.Copy(upstream, buffered); _ = upstream.(*net.TCPConn).CloseWrite() }()
		_, _ = io.Copy(client, upstream)
	}))
	DeferCleanup(p.Close)
	return p
}

// expiredToken returns a token of the environment's service account that expired at this time. It is signed with the API server's key.
func (env testEnv) expiredToken(expiry time.Time) string {
	GinkgoHelper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(plane.Dir, "pki", "service-accounts.crt"), filepath.Join(plane.Dir, "pki", "service-accounts.key"))
	Expect(err).NotTo(HaveOccurred())
	encodePart := func(content map[string]any) string {
		raw, err := json.Marshal(content)
		Expect(err).NotTo(HaveOccurred())
		return base64.RawURLEncoding.EncodeToString(raw)
	}
	const issuer = "https://" + certificateName
	signed := encodePart(map[string]any{"alg": "ES256", "typ": "JWT"}) + "." + encodePart(map[string]any{
		"iss": issuer, "aud": []string{issuer}, "exp": expiry.Unix(), "iat": expiry.Add(-time.Hour).Unix(), "nbf": expiry.Add(-time.Hour).Unix(),
		"sub": "system:serviceaccount:" + env.namespace + ":bosh-cpi"})
	sum := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, pair.PrivateKey.(*ecdsa.PrivateKey), sum[:])
	Expect(err).NotTo(HaveOccurred())
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

var _ = Describe("A call", func() {
	var env testEnv
	BeforeEach(func(ctx context.Context) { env = newTestEnv(ctx) })
	nextYear := func() time.Time { return time.Now().AddDate(1, 0, 0) }

	It("authenticates with a client certificate in the kubeconfig or in files", func(ctx context.Context) {
		inline := certificateUserEntry(nextYear())
		env.mustCreateVMWith(ctx, env.directorForUser(inline))
		dir, files := GinkgoT().TempDir(), map[string]any{}
		for _, name := range []string{"client-certificate", "client-key"} {
			path := filepath.Join(dir, name)
			Expect(os.WriteFile(path, inline[name+"-data"].([]byte), 0o600)).To(Succeed())
			files[name] = path
		}
		env.mustCreateVMWith(ctx, env.directorForUser(files))
	})

	It("uses the proxy-url of the kubeconfig", func(ctx context.Context) {
		httpProxy, entry := newConnectProxy(), clusterEntry(certificateName)
		entry["proxy-url"] = httpProxy.URL
		env.mustCreateVMWith(ctx, env.directorFor(entry, certificateUserEntry(nextYear())))
		Expect(httpProxy.tunnels.Load()).To(BeNumerically(">=", 1))
	})

	It("uses the proxy in HTTPS_PROXY, which the job property env.https_proxy sets", func(ctx context.Context) {
		httpProxy, d := newConnectProxy(), env.directorFor(clusterEntry(certificateName), certificateUserEntry(nextYear()))
		d.CPI = filepath.Join(GinkgoT().TempDir(), "cpi")
		Expect(os.WriteFile(d.CPI, fmt.Appendf(nil, "#!/bin/sh\nexport HTTPS_PROXY=%s\nexec %s \"$@\"\n", httpProxy.URL, cpiPath), 0o700)).To(Succeed())
		env.mustCreateVMWith(ctx, d)
		Expect(httpProxy.tunnels.Load()).To(BeNumerically(">=", 1))
	})

	It("accepts a server certificate with another name if the kubeconfig has that name in tls-server-name", func(ctx context.Context) {
		entry := clusterEntry("localhost")
		response, err := env.directorFor(entry, certificateUserEntry(nextYear())).Call(ctx, "has_vm", "agent-one")
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Error.Message).To(ContainSubstring("not localhost"))
		entry["tls-server-name"] = certificateName
		env.mustCreateVMWith(ctx, env.directorFor(entry, certificateUserEntry(nextYear())))
	})

	DescribeTable("with expired credentials reports what expired and when, and changes nothing:",
		func(ctx context.Context, name string, userEntry func(expiry time.Time) map[string]any) {
			expiry := time.Now().Add(-time.Hour)
			env.createVM(ctx, "one")
			previous := env.listObjects(ctx)
			expired := env.directorForUser(userEntry(expiry))
			message := ContainSubstring("the " + name + " expired on " + expiry.UTC().Format(time.RFC3339))
			for method, arguments := range map[string][]any{
				"create_vm":   {"two", stemcellCID, env.vmProperties, dynamicNetwork(), []string{}, map[string]any{}},
				"delete_vm":   {"agent-one"},
				"create_disk": {64, map[string]any{}, nil},
				"has_vm":      {"agent-one"},
			} {
				response, err := expired.Call(ctx, method, arguments...)
				Expect(err).NotTo(HaveOccurred())
				expectedType := map[bool]string{true: "Bosh::Clouds::VMCreationFailed", false: "Bosh::Clouds::CloudError"}[method == "create_vm"]
				Expect(response.Error).To(And(HaveField("Type", expectedType), HaveField("Message", message), HaveField("OkToRetry", false)), method)
			}
			Expect(env.listObjects(ctx)).To(ConsistOf(previous))
		},
		Entry("a client certificate", "client certificate", certificateUserEntry),
		Entry("a token", "token", func(expiry time.Time) map[string]any { return map[string]any{"token": env.expiredToken(expiry)} }),
	)
})
