package integration

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"bosh-kubernetes-cpi/cpi/preflight"
	"bosh-kubernetes-cpi/test/apiproxy"
	"bosh-kubernetes-cpi/test/director"
	"bosh-kubernetes-cpi/test/stemcells"
)

// directorForUser is the world's director with a kubeconfig of its own for this user, past the proxy.
func (env testEnv) directorForUser(userEntry map[string]any) *director.Director {
	GinkgoHelper()
	return env.directorFor(clusterEntry("127.0.0.1"), userEntry)
}

// clusterEntry is a kubeconfig's entry for the cluster, called by this name.
func clusterEntry(name string) map[string]any {
	GinkgoHelper()
	admin, err := clientcmd.BuildConfigFromFlags("", plane.Kubeconfig("admin"))
	Expect(err).NotTo(HaveOccurred())
	serverURL, err := url.Parse(admin.Host)
	Expect(err).NotTo(HaveOccurred())
	return map[string]any{"server": "https://" + net.JoinHostPort(name, serverURL.Port()), "certificate-authority-data": admin.CAData}
}

// directorFor is the world's director with a kubeconfig of its own, for this cluster and this user.
func (env testEnv) directorFor(clusterEntry, userEntry map[string]any) *director.Director {
	GinkgoHelper()
	kubeconfig, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "it",
		"clusters": []any{map[string]any{"name": "it", "cluster": clusterEntry}},
		"users":    []any{map[string]any{"name": "it", "user": userEntry}},
		"contexts": []any{map[string]any{"name": "it", "context": map[string]any{"cluster": "it", "user": "it"}}},
	})
	Expect(err).NotTo(HaveOccurred())
	return env.directorWithConfig("kubernetes", map[string]any{"kubeconfig": string(kubeconfig), "namespace": env.namespace})
}

// certificateUserEntry is one of the cluster's authority, for a user with all rights, until then.
func certificateUserEntry(notAfter time.Time) map[string]any {
	GinkgoHelper()
	authority, err := tls.LoadX509KeyPair(filepath.Join(plane.Dir, "pki", "ca.crt"), filepath.Join(plane.Dir, "pki", "ca.key"))
	Expect(err).NotTo(HaveOccurred())
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	raw, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "someone", Organization: []string{"system:masters"}},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: notAfter, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, authority.Leaf, &key.PublicKey, authority.PrivateKey)
	Expect(err).NotTo(HaveOccurred())
	rawKey, err := x509.MarshalPKCS8PrivateKey(key)
	Expect(err).NotTo(HaveOccurred())
	return map[string]any{
		"client-certificate-data": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}),
		"client-key-data":         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: rawKey}),
	}
}

// changeVersionResponse has the proxy change the answers to /version on their way.
func changeVersionResponse(change func(http.Header, []byte) []byte) apiproxy.Fault {
	return func(_ int, w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.URL.Path != "/version" {
			next.ServeHTTP(w, r)
			return
		}
		answer := httptest.NewRecorder()
		next.ServeHTTP(answer, r)
		body := change(answer.Header(), answer.Body.Bytes())
		w.Header().Set("Date", answer.Header().Get("Date"))
		_, _ = w.Write(body)
	}
}

// skewServerClock has the API server's clock be ahead of this machine's by so much.
func skewServerClock(offset time.Duration) apiproxy.Fault {
	return changeVersionResponse(func(header http.Header, body []byte) []byte {
		header.Set("Date", time.Now().Add(offset).UTC().Format(http.TimeFormat))
		return bytes.Clone(body)
	})
}

var _ = Describe("A check of the API server", func() {
	var env testEnv
	BeforeEach(func(ctx context.Context) { env = newTestEnv(ctx) })

	It("that does not answer says so, and looks at nothing else", func(ctx context.Context) {
		listener := httptest.NewServer(http.NotFoundHandler())
		listener.Close()
		kubeconfig := `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"c"}}],
			"clusters":[{"name":"c","cluster":{"server":"` + listener.URL + `"}}],"users":[{"name":"c","user":{"token":"t"}}]}`
		report := runCheck(ctx, env.directorWithConfig("kubernetes", map[string]any{"kubeconfig": kubeconfig, "namespace": env.namespace}))
		Expect(report.results["api"]).To(matchResult(preflight.Fails, "the Kubernetes API server cannot be reached", "check the server's URL"))
		Expect(report.status).To(Equal(1))
		Expect(report.results["credentials"].Verdict).To(Equal(preflight.Fails))
		delete(report.results, "api")
		delete(report.results, "credentials")
		for name, result := range report.results {
			Expect(result).To(matchResult(preflight.Unknown, "not looked at", "see api"), name)
		}
	})

	It("that is none says so", func(ctx context.Context) {
		proxy.Reset(apiproxy.ProxyError(http.StatusNotFound))
		Expect(runCheck(ctx, env.Director).results["api"]).To(matchResult(preflight.Fails, "what answers does not serve the Kubernetes API", "check the server's URL"))
	})

	DescribeTable("tells of a version that the CPI is not made for",
		func(ctx context.Context, minor string, verdict preflight.Verdict, advice string) {
			proxy.Reset(changeVersionResponse(func(_ http.Header, body []byte) []byte {
				var version map[string]string
				Expect(json.Unmarshal(body, &version)).To(Succeed())
				version["minor"], version["gitVersion"] = minor, "v1."+minor+".0"
				changed, err := json.Marshal(version)
				Expect(err).NotTo(HaveOccurred())
				return changed
			}))
			Expect(runCheck(ctx, env.Director).results["api-version"]).To(matchResult(verdict, "v1."+minor, advice))
		},
		Entry("old", "32", preflight.Fails, "upgrade the cluster"),
		Entry("the oldest", "33", preflight.OK, ""),
		Entry("of a provider", "34+", preflight.OK, ""),
		Entry("new", "37", preflight.Warns, "a newer release"),
	)

	It("whose clock is another tells by how much", func(ctx context.Context) {
		proxy.Reset(skewServerClock(-90 * time.Second))
		Expect(runCheck(ctx, env.Director).results["clock"]).To(Or(matchResult(preflight.Fails, "1m30s behind", "time servers"), matchResult(preflight.Fails, "1m29s behind", "time servers")))
	})

	It("tells when a token ends", func(ctx context.Context) {
		shortLived, err := cluster.CoreV1().ServiceAccounts(env.namespace).CreateToken(ctx, "bosh-cpi", &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(25 * 60 * 60))}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		report := runCheck(ctx, env.directorForUser(map[string]any{"token": shortLived.Status.Token}))
		Expect(report.results["credentials"]).To(matchResult(preflight.Warns, "the token ends in 1 days", "make new credentials"))
		Expect(report.status).To(BeZero())
		report = runCheck(ctx, env.directorForUser(map[string]any{"token": "nobody's"}))
		Expect(report.results["credentials"]).To(matchResult(preflight.Fails, "does not accept the token", "make new credentials"))
		Expect(report.status).To(Equal(1))
	})

	It("tells when a client certificate ends, and that it has", func(ctx context.Context) {
		Expect(runCheck(ctx, env.directorForUser(certificateUserEntry(time.Now().Add(49*time.Hour)))).results["credentials"]).To(
			matchResult(preflight.Warns, "the client certificate ends in 2 days", "make new credentials"))
		Expect(runCheck(ctx, env.directorForUser(certificateUserEntry(time.Now().Add(-time.Hour)))).results["credentials"]).To(
			matchResult(preflight.Fails, "the client certificate ended on", "make new credentials"))
		Expect(runCheck(ctx, env.directorForUser(certificateUserEntry(time.Now().AddDate(1, 0, 0)))).results["credentials"].Verdict).To(Equal(preflight.OK))
	})
})

var _ = Describe("A check of the configuration", func() {
	var env testEnv
	BeforeEach(func(ctx context.Context) { env = newTestEnv(ctx) })

	It("begins an upload to the registry, and cancels it", func(ctx context.Context) {
		registry := stemcells.NewRegistry(false)
		DeferCleanup(registry.Close)
		registry.Username, registry.Password = "bosh", "sesame"
		directorWithPassword := func(password string) *director.Director {
			return env.directorWithConfig("stemcell", map[string]any{"registry": map[string]any{
				"repository": registry.Host() + "/bosh/stemcells", "username": "bosh", "password": password, "insecure": true}})
		}
		Expect(runCheck(ctx, directorWithPassword("sesame")).results["registry"]).To(matchResult(preflight.OK, "takes uploads", ""))
		Expect(registry.Requests()).To(And(ContainElement(HavePrefix("POST /v2/bosh/stemcells/blobs/uploads/")), ContainElement(HavePrefix("DELETE /"))))
		report := runCheck(ctx, directorWithPassword("wrong"))
		Expect(report.results["registry"]).To(matchResult(preflight.Fails, "check stemcell.registry.username and password", "correct stemcell.registry"))
		Expect(report.status).To(Equal(1))
		registry.SetFault(stemcells.RejectMethod(http.MethodPost, http.StatusForbidden, "DENIED"))
		Expect(runCheck(ctx, directorWithPassword("sesame")).results["registry"]).To(matchResult(preflight.Fails, "the right to pull, push and delete", "correct stemcell.registry"))
	})

	It("compares the attachments' priority with the machines'", func(ctx context.Context) {
		Expect(runCheck(ctx, env.Director).results["priority-class"]).To(matchResult(preflight.Warns, "is not set", "manifests/priority-class.yaml"))
		classes := cluster.SchedulingV1().PriorityClasses()
		const low = "low-priority"
		_, err := classes.Create(ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: low}, Value: -5}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx context.Context) { Expect(classes.Delete(ctx, low, metav1.DeleteOptions{})).To(Succeed()) })
		checkPriorityClass := func(priorityClass string) map[string]preflight.Result {
			return runCheck(ctx, env.directorWithConfig("disk", map[string]any{"attachment_priority_class": priorityClass})).results
		}
		Eventually(checkPriorityClass).WithArguments(low).Should(HaveKeyWithValue("priority-class", matchResult(preflight.Fails, "has the value -5, VMs without a priority_class have 0", "a value above")))
		results := checkPriorityClass("none")
		Expect(results["priority-class"]).To(matchResult(preflight.Fails, "no PriorityClass with name none", "make that PriorityClass"))
		Expect(results["create-attachment"].Verdict).To(Equal(preflight.Fails))
	})

	It("tries Pods with the image of the machines that are there, or the one that is asked for", func(ctx context.Context) {
		Expect(runCheck(ctx, env.Director, "-image", "").results["create-vm"]).To(matchResult(preflight.Fails, "ValidatingAdmissionPolicy 'bosh-cpi-limits'", "give a stemcell's image with -image"))
		env.createVM(ctx, "one")
		Expect(runCheck(ctx, env.Director, "-image", "").results["create-vm"].Detail).To(ContainSubstring("with image " + stemcellCID))
		Expect(runCheck(ctx, env.Director, "-image", "registry.example.com/other:1").results["create-vm"].Detail).To(ContainSubstring("with image registry.example.com/other:1"))
	})

	It("tells when static addresses are asked of nobody", func(ctx context.Context) {
		withoutAnnotations := env.directorWithConfig("network", map[string]any{"address_annotations": []any{}})
		Expect(runCheck(ctx, withoutAnnotations).results["addresses"]).To(matchResult(preflight.Fails, "network.address_annotations is empty", "name the annotation"))
	})
})
