package integration

import (
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
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"bosh-kubernetes-cpi/cpi/preflight"
	"bosh-kubernetes-cpi/test/harness/apiproxy"
	"bosh-kubernetes-cpi/test/harness/director"
	"bosh-kubernetes-cpi/test/harness/stemcells"
)

// directorForUser returns the director of the environment with a kubeconfig for this user. It bypasses the proxy.
func (env testEnv) directorForUser(userEntry map[string]any) *director.Director {
	GinkgoHelper()
	return env.directorFor(clusterEntry("127.0.0.1"), userEntry)
}

// clusterEntry returns a kubeconfig entry for the cluster with this host name in its URL.
func clusterEntry(host string) map[string]any {
	GinkgoHelper()
	admin, err := clientcmd.BuildConfigFromFlags("", plane.Kubeconfig("admin"))
	Expect(err).NotTo(HaveOccurred())
	serverURL, err := url.Parse(admin.Host)
	Expect(err).NotTo(HaveOccurred())
	return map[string]any{"server": "https://" + net.JoinHostPort(host, serverURL.Port()), "certificate-authority-data": admin.CAData}
}

// directorFor returns the director of the environment with a kubeconfig for this cluster and this user.
func (env testEnv) directorFor(clusterEntry, userEntry map[string]any) *director.Director {
	GinkgoHelper()
	kubeconfig, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "it",
		"clusters": []any{map[string]any{"name": "it", "cluster": clusterEntry}},
		"users":    []any{map[string]any{"name": "it", "user": userEntry}},
		"contexts": []any{map[string]any{"name": "it", "context": map[string]any{"cluster": "it", "user": "it"}}},
	})
	Expect(err).NotTo(HaveOccurred())
	return env.directorWithCluster(map[string]any{"kubeconfig": string(kubeconfig), "namespace": env.namespace})
}

// certificateUserEntry returns a kubeconfig user with all permissions, and a client certificate that is valid until notAfter.
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

// changeVersionResponse makes the proxy change the responses to /version.
func changeVersionResponse(change func([]byte) []byte) apiproxy.Fault {
	return func(_ int, w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.URL.Path != "/version" {
			next.ServeHTTP(w, r)
			return
		}
		response := httptest.NewRecorder()
		next.ServeHTTP(response, r)
		_, _ = w.Write(change(response.Body.Bytes()))
	}
}

// skewServerClock shifts the API server's clock in responses from the clock of this host.
func skewServerClock(offset time.Duration) apiproxy.Fault {
	return func(_ int, w http.ResponseWriter, r *http.Request, next http.Handler) {
		next.ServeHTTP(skewedResponse{w, offset}, r)
	}
}

type skewedResponse struct {
	http.ResponseWriter
	offset time.Duration
}

func (r skewedResponse) WriteHeader(status int) {
	r.Header().Set("Date", time.Now().Add(r.offset).UTC().Format(http.TimeFormat))
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController flush the response.
func (r skewedResponse) Unwrap() http.ResponseWriter { return r.ResponseWriter }

var _ = Describe("Preflight checks of the API server", func() {
	var env testEnv
	BeforeEach(func(ctx context.Context) { env = newTestEnv(ctx) })

	It("report a server that does not respond, and skip all other checks", func(ctx context.Context) {
		listener := httptest.NewServer(http.NotFoundHandler())
		listener.Close()
		kubeconfig := `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"c"}}],
			"clusters":[{"name":"c","cluster":{"server":"` + listener.URL + `"}}],"users":[{"name":"c","user":{"token":"t"}}]}`
		report := runCheck(ctx, env.directorWithCluster(map[string]any{"kubeconfig": kubeconfig, "namespace": env.namespace}))
		Expect(report.results["api"]).To(matchResult(preflight.Fails, "cannot reach the Kubernetes API server", "check the server's URL"))
		Expect(report.status).To(Equal(1))
		delete(report.results, "api")
		for name, result := range report.results {
			Expect(result).To(matchResult(preflight.Unknown, "skipped", "see api"), name)
		}
	})

	It("report a server that does not serve the Kubernetes API", func(ctx context.Context) {
		proxy.Reset(apiproxy.ProxyError(http.StatusNotFound))
		Expect(runCheck(ctx, env.Director).results["api"]).To(matchResult(preflight.Fails, "the server does not serve the Kubernetes API", "check the server's URL"))
	})

	DescribeTable("compare its version with the versions that the CPI supports:",
		func(ctx context.Context, minor string, verdict preflight.Verdict, remedy string) {
			proxy.Reset(changeVersionResponse(func(body []byte) []byte {
				var version map[string]string
				Expect(json.Unmarshal(body, &version)).To(Succeed())
				version["minor"], version["gitVersion"] = minor, "v1."+minor+".0"
				changed, err := json.Marshal(version)
				Expect(err).NotTo(HaveOccurred())
				return changed
			}))
			Expect(runCheck(ctx, env.Director).results["api-version"]).To(matchResult(verdict, "v1."+minor, remedy))
		},
		Entry("too old", "34", preflight.Fails, "upgrade the cluster"),
		Entry("oldest supported", "35", preflight.OK, ""),
		Entry("with a suffix of a provider", "36+", preflight.OK, ""),
		Entry("newer than the CPI", "38", preflight.Warns, "a newer release"),
	)

	It("report by how much its clock differs", func(ctx context.Context) {
		proxy.Reset(skewServerClock(-90 * time.Second))
		Expect(runCheck(ctx, env.Director).results["clock"]).To(Or(matchResult(preflight.Fails, "1m30s behind", "time servers"), matchResult(preflight.Fails, "1m29s behind", "time servers")))
	})

	It("warn about a token that expires soon, and fail for a token that is rejected", func(ctx context.Context) {
		shortLived, err := cluster.CoreV1().ServiceAccounts(env.namespace).CreateToken(ctx, "bosh-cpi", &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(25 * 60 * 60))}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		report := runCheck(ctx, env.directorForUser(map[string]any{"token": shortLived.Status.Token}))
		Expect(report.results["credentials"]).To(matchResult(preflight.Warns, "the token expires in 1 days", "renew the credentials"))
		Expect(report.status).To(BeZero())
		report = runCheck(ctx, env.directorForUser(map[string]any{"token": "unknown"}))
		Expect(report.results["credentials"]).To(matchResult(preflight.Fails, "rejected the token", "renew the credentials"))
		Expect(report.status).To(Equal(1))
	})

	It("warn about a client certificate that expires soon, and fail for an expired one", func(ctx context.Context) {
		Expect(runCheck(ctx, env.directorForUser(certificateUserEntry(time.Now().Add(49*time.Hour)))).results["credentials"]).To(
			matchResult(preflight.Warns, "the client certificate expires in 2 days", "renew the credentials"))
		Expect(runCheck(ctx, env.directorForUser(certificateUserEntry(time.Now().Add(-time.Hour)))).results["credentials"]).To(
			matchResult(preflight.Fails, "the client certificate expired on", "renew the credentials"))
		Expect(runCheck(ctx, env.directorForUser(certificateUserEntry(time.Now().AddDate(1, 0, 0)))).results["credentials"].Verdict).To(Equal(preflight.OK))
	})
})

var _ = Describe("Preflight checks of the configuration", func() {
	var env testEnv
	BeforeEach(func(ctx context.Context) { env = newTestEnv(ctx) })

	It("start an upload to the registry, and cancel it", func(ctx context.Context) {
		registry := stemcells.NewRegistry(false)
		DeferCleanup(registry.Close)
		registry.Username, registry.Password = "bosh", "sesame"
		directorWithPassword := func(password string) *director.Director {
			return env.directorWithConfig("stemcell", map[string]any{"registry": map[string]any{
				"repository": registry.Host() + "/bosh/stemcells", "username": "bosh", "password": password, "insecure": true}})
		}
		Expect(runCheck(ctx, directorWithPassword("sesame")).results["registry"]).To(matchResult(preflight.OK, "accepts uploads", ""))
		Expect(registry.Requests()).To(And(ContainElement(HavePrefix("POST /v2/bosh/stemcells/blobs/uploads/")), ContainElement(HavePrefix("DELETE /"))))
		report := runCheck(ctx, directorWithPassword("wrong"))
		Expect(report.results["registry"]).To(matchResult(preflight.Fails, "check kubernetes.stemcell.registry.username and password", "correct kubernetes.stemcell.registry"))
		Expect(report.status).To(Equal(1))
		registry.SetFault(stemcells.RejectMethod(http.MethodPost, http.StatusForbidden, "DENIED"))
		Expect(runCheck(ctx, directorWithPassword("sesame")).results["registry"]).To(matchResult(preflight.Fails, "pull, push and delete", "correct kubernetes.stemcell.registry"))
	})

	It("compare the priority of attachment Pods with the priority of critical Pods", func(ctx context.Context) {
		classes := cluster.SchedulingV1().PriorityClasses()
		const low = "low-priority"
		_, err := classes.Create(ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: low}, Value: -5}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx context.Context) { Expect(classes.Delete(ctx, low, metav1.DeleteOptions{})).To(Succeed()) })
		checkPriorityClass := func(priorityClass string) preflight.Result {
			return runCheck(ctx, env.directorWithConfig("disk", map[string]any{"attachment_priority_class": priorityClass})).results["create-attachment"]
		}
		Eventually(checkPriorityClass).WithArguments(low).Should(matchResult(preflight.Warns, "PriorityClass "+low+" of attachment Pods has value -5", "remove kubernetes.disk.attachment_priority_class"))
		Expect(checkPriorityClass("none")).To(matchResult(preflight.Fails, "no PriorityClass with name none", "create the PriorityClass"))
	})

	It("create Pods in a dry run, with the image of an existing VM or of -image", func(ctx context.Context) {
		Expect(runCheck(ctx, env.Director, "-image", "").results["create-vm"]).To(matchResult(preflight.Fails, "ValidatingAdmissionPolicy 'bosh-cpi-limits'", "set --image to the image of a stemcell"))
		env.createVM(ctx, "one")
		Expect(runCheck(ctx, env.Director, "-image", "").results["create-vm"].Detail).To(ContainSubstring("with image " + stemcellCID))
		Expect(runCheck(ctx, env.Director, "-image", "registry.example.com/other:1").results["create-vm"].Detail).To(ContainSubstring("with image registry.example.com/other:1"))
	})

	DescribeTable("create Pods that comply with the limits of the admission policy, with", func(ctx context.Context, rule, detail string, limits map[string]string) {
		_, err := cluster.NodeV1().RuntimeClasses().Create(ctx, &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: env.namespace}, Handler: "runsc"}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx context.Context) {
			Expect(cluster.NodeV1().RuntimeClasses().Delete(ctx, env.namespace, metav1.DeleteOptions{})).To(Succeed())
		})
		for key, value := range limits {
			limits[key] = strings.ReplaceAll(value, "NAME", env.namespace)
		}
		env.changeAdmissionLimits(ctx, limits)
		env.waitForRule(ctx, rule)
		report := runCheck(ctx, env.Director)
		for _, check := range []string{"create-vm", "create-attachment", "create-reboot", "create-flush", "create-template"} {
			Expect(report.results[check].Verdict).To(Equal(preflight.OK), "%v", report.results[check])
		}
		Expect(report.results["create-vm"].Detail).To(HaveSuffix(strings.ReplaceAll(detail, "NAME", env.namespace)))
	},
		Entry("dedicated nodes", "node-selector", "; the limits require of each VM, also the director's, node_selector dedicated: bosh, node_selector zone: a", map[string]string{"node_selector": "dedicated=bosh\nzone=a\n"}),
		Entry("certain nodes", "nodes", stemcellCID, map[string]string{"nodes": "node-b\n"}),
		Entry("unprivileged VMs", "privileged", "the director's, security.privileged: false", map[string]string{"privileged_vms": "false"}),
		Entry("user namespaces", "isolation", "the director's, security.host_users: false", map[string]string{"isolation": "host_users: false\n"}),
		Entry("a runtime class", "isolation", "the director's, runtime_class: NAME", map[string]string{"isolation": "runtime_class: NAME\n"}),
	)

	It("name the permission to get the limits if their samples do not comply", func(ctx context.Context) {
		env.changeAdmissionLimits(ctx, map[string]string{"privileged_vms": "false"})
		env.waitForRule(ctx, "privileged")
		role, err := cluster.RbacV1().Roles(env.namespace).Get(ctx, "bosh-cpi", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		role.Rules = slices.DeleteFunc(role.Rules, func(rule rbacv1.PolicyRule) bool { return rule.Resources[0] == "configmaps" })
		_, err = cluster.RbacV1().Roles(env.namespace).Update(ctx, role, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() preflight.Result { return runCheck(ctx, env.Director).results["create-vm"] }).WithContext(ctx).Should(matchResult(preflight.Fails,
			"rule privileged", "without permission to get the ConfigMap bosh-cpi-limits, which is in manifests/rbac.yaml"))
	})

	It("use a StorageClass of the limits for disks if they exclude the default one", func(ctx context.Context) {
		env.changeAdmissionLimits(ctx, map[string]string{"storage_classes": "immediate\n"})
		Eventually(func() preflight.Result { return runCheck(ctx, env.Director).results["storage-classes"] }).WithContext(ctx).Should(HaveField("Verdict", Not(Equal(preflight.OK))))
		Expect(runCheck(ctx, env.Director).results["create-disk"].Verdict).To(Equal(preflight.OK))
	})

	It("fail if no annotation requests static addresses", func(ctx context.Context) {
		withoutAnnotations := env.directorWithConfig("network", map[string]any{"address_annotations": []any{}})
		Expect(runCheck(ctx, withoutAnnotations).results["addresses"]).To(matchResult(preflight.Fails, "kubernetes.network.address_annotations is empty", "add the annotation"))
	})
})
