package integration

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"bosh-kubernetes-cpi/cpi/preflight"
	"bosh-kubernetes-cpi/test/harness/apiproxy"
	"bosh-kubernetes-cpi/test/harness/director"
)

// createBoundToken creates a Secret, and returns a token of the CPI's service account that is valid while the Secret exists.
func (env testEnv) createBoundToken(ctx context.Context, name string) string {
	GinkgoHelper()
	secret, err := cluster.CoreV1().Secrets(env.namespace).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	token, err := cluster.CoreV1().ServiceAccounts(env.namespace).CreateToken(ctx, "bosh-cpi", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Secret", Name: name, UID: secret.UID}}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return token.Status.Token
}

// revokeToken deletes the Secret of a bound token, and waits until the API server, which caches tokens for ten seconds, rejects the token.
func (env testEnv) revokeToken(ctx context.Context, name, token string) {
	GinkgoHelper()
	Expect(cluster.CoreV1().Secrets(env.namespace).Delete(ctx, name, metav1.DeleteOptions{})).To(Succeed())
	config, err := clientcmd.BuildConfigFromFlags("", plane.Kubeconfig("admin"))
	Expect(err).NotTo(HaveOccurred())
	config.BearerToken = token
	client, err := kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	Eventually(func() bool {
		_, err := client.CoreV1().Pods(env.namespace).List(ctx, metav1.ListOptions{})
		return apierrors.IsUnauthorized(err)
	}).WithContext(ctx).Should(BeTrue())
}

// rotationProxy changes the director's token in the middle of a call.
type rotationProxy struct {
	*apiproxy.Proxy
	mutex  sync.Mutex
	tokens []string // tokens of each request
}

// newRotationProxy returns a proxy that calls rotate once, before it forwards the third request. It rejects rejectedToken from the third
// request on.
func newRotationProxy(rejectedToken string, rotate func()) *rotationProxy {
	GinkgoHelper()
	tlsProxy, err := apiproxy.NewTLS(plane.Kubeconfig("admin"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(tlsProxy.Close)
	r := &rotationProxy{Proxy: tlsProxy}
	tlsProxy.Reset(func(n int, w http.ResponseWriter, request *http.Request, next http.Handler) {
		const third = 3
		if n == third {
			func() { defer GinkgoRecover(); rotate() }()
		}
		token := strings.TrimPrefix(request.Header.Get("Authorization"), "Bearer ")
		r.mutex.Lock()
		r.tokens = append(r.tokens, token)
		r.mutex.Unlock()
		if n >= third && token == rejectedToken {
			next = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				apiproxy.ErrorStatus(http.StatusUnauthorized, metav1.StatusReasonUnauthorized)(n)(n, w, request, nil)
			})
		}
		next.ServeHTTP(w, request)
	})
	return r
}

// clusterEntry returns a kubeconfig entry for the cluster through the proxy.
func (r *rotationProxy) clusterEntry() map[string]any {
	return map[string]any{"server": r.URL(), "certificate-authority-data": r.CACertificate()}
}

// sentTokens returns the tokens of all requests in order, without consecutive duplicates.
func (r *rotationProxy) sentTokens() []string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	var distinct []string
	for _, token := range r.tokens {
		if len(distinct) == 0 || distinct[len(distinct)-1] != token {
			distinct = append(distinct, token)
		}
	}
	return distinct
}

// mustCreateVMWith creates a VM with this director, and expects success.
func (env testEnv) mustCreateVMWith(ctx context.Context, d *director.Director) {
	GinkgoHelper()
	env.Director = d
	env.createVM(ctx, "one")
	Expect(env.listObjects(ctx)).To(ContainElements("Pod/agent-one", "Secret/agent-one"))
}

// writeFileAtomic replaces the file atomically, as the kubelet does.
func writeFileAtomic(path, content string) {
	GinkgoHelper()
	Expect(os.WriteFile(path+".new", []byte(content), 0o600)).To(Succeed())
	Expect(os.Rename(path+".new", path)).To(Succeed())
}

var _ = Describe("A call during which the token of its service account is renewed", func() {
	var (
		env       testEnv
		dir       string
		old, next string
	)
	BeforeEach(func(ctx context.Context) {
		env, dir = newTestEnv(ctx), GinkgoT().TempDir()
		old, next = env.createBoundToken(ctx, "old"), env.createBoundToken(ctx, "next")
		writeFileAtomic(filepath.Join(dir, "token"), old)
	})

	It("continues with the new token in the token file when the API server rejects the old one", func(ctx context.Context) {
		rotation := newRotationProxy("", func() {
			writeFileAtomic(filepath.Join(dir, "token"), next)
			env.revokeToken(ctx, "old", old)
		})
		env.mustCreateVMWith(ctx, env.directorFor(rotation.clusterEntry(), map[string]any{"tokenFile": filepath.Join(dir, "token")}))
		Expect(rotation.sentTokens()).To(Equal([]string{old, next}))
		requests := rotation.Requests()
		Expect(requests[3]).To(Equal(requests[2]), "the rejected request is retried")
	})

	It("continues with the new token that the kubelet writes into the Pod", func(ctx context.Context) {
		rotation := newRotationProxy(old, func() { writeFileAtomic(filepath.Join(dir, "token"), next) })
		writeFileAtomic(filepath.Join(dir, "ca.crt"), string(rotation.CACertificate()))
		writeFileAtomic(filepath.Join(dir, "namespace"), env.namespace)
		inPod := env.directorWithCluster(map[string]any{})
		inPod.CPI = writeInPodWrapper(dir, rotation.URL())
		env.mustCreateVMWith(ctx, inPod)
		Expect(rotation.sentTokens()).To(Equal([]string{old, next}))
	})

	It("names the rejected token if the file has no newer one", func(ctx context.Context) {
		rotation := newRotationProxy(old, func() {})
		d := env.directorFor(rotation.clusterEntry(), map[string]any{"tokenFile": filepath.Join(dir, "token")})
		response, err := d.Call(ctx, "create_vm", "one", stemcellCID, env.vmProperties, dynamicNetwork(), []string{}, map[string]any{})
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Error).To(And(HaveField("OkToRetry", false), HaveField("Message", And(
			ContainSubstring("the API server rejected the token file "+filepath.Join(dir, "token")), ContainSubstring("renew them")))))
	})
})

// writeInPodWrapper writes a program that runs the CPI as in a Pod, and returns its path. The program mounts serviceAccountDir where the
// kubelet mounts a service account, in its own mount namespace.
func writeInPodWrapper(serviceAccountDir, url string) string {
	GinkgoHelper()
	unshare := "unshare --mount"
	if os.Geteuid() != 0 {
		unshare += " --map-root-user"
	}
	if out, err := exec.Command("sh", "-c", unshare+" mount -t tmpfs none /run").CombinedOutput(); err != nil {
		Skip("this host lets only root create a mount namespace: " + string(out))
	}
	host, port, _ := strings.Cut(strings.TrimPrefix(url, "https://"), ":")
	path := filepath.Join(GinkgoT().TempDir(), "cpi")
	Expect(os.WriteFile(path, fmt.Appendf(nil, `#!/bin/sh
export KUBERNETES_SERVICE_HOST=%s KUBERNETES_SERVICE_PORT=%s
exec %s sh -euc 'mount -t tmpfs none /run
at=/run/secrets/kubernetes.io/serviceaccount
mkdir -p $at && mount --bind %s $at && exec %s "$@"' sh "$@"
`, host, port, unshare, serviceAccountDir, cpiPath), 0o700)).To(Succeed())
	return path
}

// credentialPlugin is a client-go credential plugin, like those of cloud providers. It counts its runs.
type credentialPlugin struct{ dir string }

// newCredentialPlugin creates a plugin that returns this token.
func newCredentialPlugin(token string) credentialPlugin {
	GinkgoHelper()
	p := credentialPlugin{GinkgoT().TempDir()}
	p.setToken(token, time.Time{})
	Expect(os.WriteFile(p.command(), fmt.Appendf(nil, "#!/bin/sh\necho run >>%[1]s/runs\ncat %[1]s/output\n", p.dir), 0o700)).To(Succeed())
	return p
}

func (p credentialPlugin) command() string {
	return filepath.Join(p.dir, "cloud-credentials")
}

// setToken sets the token that the plugin returns from now on. expiry is the token's expiry, unless it is zero.
func (p credentialPlugin) setToken(token string, expiry time.Time) {
	GinkgoHelper()
	expiryField := ""
	if !expiry.IsZero() {
		expiryField = fmt.Sprintf(`, "expirationTimestamp": %q`, expiry.UTC().Format(time.RFC3339))
	}
	writeFileAtomic(filepath.Join(p.dir, "output"), fmt.Sprintf(
		`{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": %q%s}}`, token, expiryField))
}

// runCount returns how often the plugin was run.
func (p credentialPlugin) runCount() int {
	GinkgoHelper()
	raw, err := os.ReadFile(filepath.Join(p.dir, "runs"))
	Expect(err).NotTo(HaveOccurred())
	return strings.Count(string(raw), "run")
}

// execUserEntry returns a kubeconfig user with this command as its credential plugin.
func execUserEntry(command string) map[string]any {
	return map[string]any{"exec": map[string]any{"apiVersion": "client.authentication.k8s.io/v1", "command": command, "interactiveMode": "Never"}}
}

var _ = Describe("A call with a credential plugin", func() {
	var (
		env       testEnv
		old, next string
	)
	BeforeEach(func(ctx context.Context) {
		env = newTestEnv(ctx)
		old, next = env.createBoundToken(ctx, "old"), env.createBoundToken(ctx, "next")
	})

	It("runs the plugin once", func(ctx context.Context) {
		plugin := newCredentialPlugin(old)
		env.mustCreateVMWith(ctx, env.directorForUser(execUserEntry(plugin.command())))
		Expect(plugin.runCount()).To(Equal(1))
	})

	It("runs the plugin again when the credentials expire during the call", func(ctx context.Context) {
		plugin := newCredentialPlugin("")
		expiry := time.Now().Add(2 * time.Second)
		plugin.setToken(old, expiry)
		rotation := newRotationProxy("", func() {
			plugin.setToken(next, time.Now().Add(time.Hour))
			Eventually(time.Now).Should(BeTemporally(">", expiry))
		})
		env.mustCreateVMWith(ctx, env.directorFor(rotation.clusterEntry(), execUserEntry(plugin.command())))
		Expect(rotation.sentTokens()).To(Equal([]string{old, next}))
		Expect(plugin.runCount()).To(Equal(2))
	})

	It("runs the plugin again when the API server rejects the credentials", func(ctx context.Context) {
		plugin := newCredentialPlugin(old)
		rotation := newRotationProxy(old, func() { plugin.setToken(next, time.Time{}) })
		env.mustCreateVMWith(ctx, env.directorFor(rotation.clusterEntry(), execUserEntry(plugin.command())))
		Expect(rotation.sentTokens()).To(Equal([]string{old, next}))
		Expect(plugin.runCount()).To(Equal(2))
	})

	It("fails if the plugin does not exist, and names the remedies", func(ctx context.Context) {
		response, err := env.directorForUser(execUserEntry("unknown-credentials")).Call(ctx, "has_vm", "agent-one")
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Error).To(And(HaveField("Type", "Bosh::Clouds::CloudError"), HaveField("Message", And(
			ContainSubstring("credential plugin unknown-credentials of the kubeconfig is not installed on this host"),
			ContainSubstring("install it, or use a kubeconfig with a token"), ContainSubstring("correct the user in kubernetes.kubeconfig")))))
		Expect(runCheck(ctx, env.directorForUser(execUserEntry("unknown-credentials"))).results["api"]).To(
			matchResult(preflight.Fails, "credential plugin unknown-credentials", "correct the user's entry in the kubeconfig"))
	})

	It("runs a failing plugin once for each request, and names the plugin", func(ctx context.Context) {
		plugin := newCredentialPlugin(old)
		Expect(os.WriteFile(plugin.command(), fmt.Appendf(nil, "#!/bin/sh\necho run >>%s/runs\nexit 3\n", plugin.dir), 0o700)).To(Succeed())
		response, err := env.directorForUser(execUserEntry(plugin.command())).Call(ctx, "create_vm", "one", stemcellCID, env.vmProperties, dynamicNetwork(), []string{}, map[string]any{})
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Error).To(And(HaveField("OkToRetry", false), HaveField("Message", And(
			ContainSubstring("credential plugin "+plugin.command()+" of the kubeconfig returned no credentials"), ContainSubstring("exit code 3")))))
		Expect(plugin.runCount()).To(BeNumerically("<=", 2), "for the VM Pod and for the Event")
	})
})
