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
	"bosh-kubernetes-cpi/test/apiproxy"
	"bosh-kubernetes-cpi/test/director"
)

// createBoundToken is a token of the CPI's service account that ends with a Secret of this name, which it makes.
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

// revokeToken ends a bound token, and waits until the API server, which remembers tokens for ten seconds, does not accept it.
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

// rotationProxy is a change of the director's token in the middle of a call.
type rotationProxy struct {
	*apiproxy.Proxy
	mutex  sync.Mutex
	tokens []string // of each request
}

// newRotationProxy makes a proxy that does something, once, before it passes the third request on. refused is a token that it does not
// accept from then on.
func newRotationProxy(refused string, do func()) *rotationProxy {
	GinkgoHelper()
	secure, err := apiproxy.NewTLS(plane.Kubeconfig("admin"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(secure.Close)
	r := &rotationProxy{Proxy: secure}
	secure.Reset(func(n int, answer http.ResponseWriter, request *http.Request, next http.Handler) {
		const third = 3
		if n == third {
			func() { defer GinkgoRecover(); do() }()
		}
		token := strings.TrimPrefix(request.Header.Get("Authorization"), "Bearer ")
		r.mutex.Lock()
		r.tokens = append(r.tokens, token)
		r.mutex.Unlock()
		if n >= third && token == refused {
			next = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				apiproxy.Refused(http.StatusUnauthorized, metav1.StatusReasonUnauthorized)(n)(n, answer, request, nil)
			})
		}
		next.ServeHTTP(answer, request)
	})
	return r
}

// clusterEntry is a kubeconfig's entry for the cluster through the proxy.
func (r *rotationProxy) clusterEntry() map[string]any {
	return map[string]any{"server": r.URL(), "certificate-authority-data": r.CACertificate()}
}

// sentTokens are the tokens of all requests, in the order of their first use.
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

// mustCreateVMWith makes a machine by this director, which has to work.
func (env testEnv) mustCreateVMWith(ctx context.Context, caller *director.Director) {
	GinkgoHelper()
	env.Director = caller
	env.createVM(ctx, "one")
	Expect(env.listObjects(ctx)).To(ContainElements("Pod/agent-one", "Secret/agent-one"))
}

// writeFileAtomic puts the content into the file at once, as a kubelet does.
func writeFileAtomic(path, content string) {
	GinkgoHelper()
	Expect(os.WriteFile(path+".new", []byte(content), 0o600)).To(Succeed())
	Expect(os.Rename(path+".new", path)).To(Succeed())
}

var _ = Describe("A call with a service account's token that is renewed while it lasts", func() {
	var (
		env       testEnv
		folder    string
		old, next string
	)
	BeforeEach(func(ctx context.Context) {
		env, folder = newTestEnv(ctx), GinkgoT().TempDir()
		old, next = env.createBoundToken(ctx, "old"), env.createBoundToken(ctx, "next")
		writeFileAtomic(filepath.Join(folder, "token"), old)
	})

	It("goes on with what its file has by then, when the API server does not accept the one before any more", func(ctx context.Context) {
		rotation := newRotationProxy("", func() {
			writeFileAtomic(filepath.Join(folder, "token"), next)
			env.revokeToken(ctx, "old", old)
		})
		env.mustCreateVMWith(ctx, env.directorFor(rotation.clusterEntry(), map[string]any{"tokenFile": filepath.Join(folder, "token")}))
		Expect(rotation.sentTokens()).To(Equal([]string{old, next}))
		requests := rotation.Requests()
		Expect(requests[3]).To(Equal(requests[2]), "the refused request, again")
	})

	It("goes on with the one that the kubelet has put into its Pod by then", func(ctx context.Context) {
		rotation := newRotationProxy(old, func() { writeFileAtomic(filepath.Join(folder, "token"), next) })
		writeFileAtomic(filepath.Join(folder, "ca.crt"), string(rotation.CACertificate()))
		writeFileAtomic(filepath.Join(folder, "namespace"), env.namespace)
		inPod := env.directorWithConfig("kubernetes", map[string]any{})
		inPod.CPI = writeInPodWrapper(folder, rotation.URL())
		env.mustCreateVMWith(ctx, inPod)
		Expect(rotation.sentTokens()).To(Equal([]string{old, next}))
	})

	It("tells which token is not accepted where the file has no other", func(ctx context.Context) {
		rotation := newRotationProxy(old, func() {})
		d := env.directorFor(rotation.clusterEntry(), map[string]any{"tokenFile": filepath.Join(folder, "token")})
		response, err := d.Call(ctx, "create_vm", "one", stemcellCID, env.vmProperties, dynamicNetwork(), []string{}, map[string]any{})
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Error).To(And(HaveField("OkToRetry", false), HaveField("Message", And(
			ContainSubstring("does not accept the token of the file "+filepath.Join(folder, "token")), ContainSubstring("docs/credentials.md")))))
	})
})

// writeInPodWrapper is the CPI as it is in a Pod with the service account of the folder: a program that sees the folder where the kubelet
// puts it. That takes a mount namespace of its own.
func writeInPodWrapper(folder, url string) string {
	GinkgoHelper()
	unshare := "unshare --mount"
	if os.Geteuid() != 0 {
		unshare += " --map-root-user"
	}
	if out, err := exec.Command("sh", "-c", unshare+" mount -t tmpfs none /run").CombinedOutput(); err != nil {
		Skip("this machine lets nobody but root have a mount namespace: " + string(out))
	}
	host, port, _ := strings.Cut(strings.TrimPrefix(url, "https://"), ":")
	path := filepath.Join(GinkgoT().TempDir(), "cpi")
	Expect(os.WriteFile(path, fmt.Appendf(nil, `#!/bin/sh
export KUBERNETES_SERVICE_HOST=%s KUBERNETES_SERVICE_PORT=%s
exec %s sh -euc 'mount -t tmpfs none /run
at=/run/secrets/kubernetes.io/serviceaccount
mkdir -p $at && mount --bind %s $at && exec %s "$@"' sh "$@"
`, host, port, unshare, folder, cpiPath), 0o700)).To(Succeed())
	return path
}

// credentialPlugin is a program that gives credentials, as clouds have them, and counts how often it is asked.
type credentialPlugin struct{ folder string }

// newCredentialPlugin makes one that gives this token.
func newCredentialPlugin(token string) credentialPlugin {
	GinkgoHelper()
	p := credentialPlugin{GinkgoT().TempDir()}
	p.setToken(token, time.Time{})
	Expect(os.WriteFile(p.command(), fmt.Appendf(nil, "#!/bin/sh\necho asked >>%[1]s/asked\ncat %[1]s/answer\n", p.folder), 0o700)).To(Succeed())
	return p
}

func (p credentialPlugin) command() string {
	return filepath.Join(p.folder, "credentials-of-the-cloud")
}

// setToken sets the token that the program gives from now on, and its end, unless that is zero.
func (p credentialPlugin) setToken(token string, expiry time.Time) {
	GinkgoHelper()
	expires := ""
	if !expiry.IsZero() {
		expires = fmt.Sprintf(`, "expirationTimestamp": %q`, expiry.UTC().Format(time.RFC3339))
	}
	writeFileAtomic(filepath.Join(p.folder, "answer"), fmt.Sprintf(
		`{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": %q%s}}`, token, expires))
}

// runCount is how often the program has been run.
func (p credentialPlugin) runCount() int {
	GinkgoHelper()
	raw, err := os.ReadFile(filepath.Join(p.folder, "asked"))
	Expect(err).NotTo(HaveOccurred())
	return strings.Count(string(raw), "asked")
}

// execUserEntry is a kubeconfig's entry for a user with this program.
func execUserEntry(command string) map[string]any {
	return map[string]any{"exec": map[string]any{"apiVersion": "client.authentication.k8s.io/v1", "command": command, "interactiveMode": "Never"}}
}

var _ = Describe("A call with the credentials of a program", func() {
	var (
		env       testEnv
		old, next string
	)
	BeforeEach(func(ctx context.Context) {
		env = newTestEnv(ctx)
		old, next = env.createBoundToken(ctx, "old"), env.createBoundToken(ctx, "next")
	})

	It("runs it once", func(ctx context.Context) {
		plugin := newCredentialPlugin(old)
		env.mustCreateVMWith(ctx, env.directorForUser(execUserEntry(plugin.command())))
		Expect(plugin.runCount()).To(Equal(1))
	})

	It("runs it again when they end in the middle", func(ctx context.Context) {
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

	It("runs it again when the API server does not accept them any more", func(ctx context.Context) {
		plugin := newCredentialPlugin(old)
		rotation := newRotationProxy(old, func() { plugin.setToken(next, time.Time{}) })
		env.mustCreateVMWith(ctx, env.directorFor(rotation.clusterEntry(), execUserEntry(plugin.command())))
		Expect(rotation.sentTokens()).To(Equal([]string{old, next}))
		Expect(plugin.runCount()).To(Equal(2))
	})

	It("that is not there names it at once, and says what a director's VM has instead", func(ctx context.Context) {
		started := time.Now()
		response, err := env.directorForUser(execUserEntry("credentials-of-nowhere")).Call(ctx, "has_vm", "agent-one")
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Error).To(And(HaveField("Type", "Bosh::Clouds::CloudError"), HaveField("Message", And(
			ContainSubstring("has the program credentials-of-nowhere give the credentials, and this machine does not have it"),
			ContainSubstring("the service account of its Pod, or by a token"), ContainSubstring("docs/credentials.md")))))
		Expect(time.Since(started)).To(BeNumerically("<", 20*time.Second), "and is not looked for again and again, for 30 s")
		Expect(runCheck(ctx, env.directorForUser(execUserEntry("credentials-of-nowhere"))).results["api"]).To(
			matchResult(preflight.Fails, "the program credentials-of-nowhere", "correct the user's entry in kubernetes.kubeconfig"))
	})

	It("that fails names it, and is tried for as long as any request", func(ctx context.Context) {
		plugin := newCredentialPlugin(old)
		Expect(os.WriteFile(plugin.command(), fmt.Appendf(nil, "#!/bin/sh\necho asked >>%s/asked\nexit 3\n", plugin.folder), 0o700)).To(Succeed())
		response, err := env.directorForUser(execUserEntry(plugin.command())).Call(ctx, "create_vm", "one", stemcellCID, env.vmProperties, dynamicNetwork(), []string{}, map[string]any{})
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Error).To(And(HaveField("OkToRetry", false), HaveField("Message", And(
			ContainSubstring("the program "+plugin.command()+", which is to give the credentials, gave none"), ContainSubstring("exit code 3")))))
		Expect(plugin.runCount()).To(BeNumerically(">", 1))
	})
})
