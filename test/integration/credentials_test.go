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

// boundToken is a token of the CPI's service account that ends with a Secret of this name, which it makes.
func (w world) boundToken(ctx context.Context, name string) string {
	GinkgoHelper()
	secret, err := cluster.CoreV1().Secrets(w.namespace).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	token, err := cluster.CoreV1().ServiceAccounts(w.namespace).CreateToken(ctx, "bosh-cpi", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Secret", Name: name, UID: secret.UID}}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return token.Status.Token
}

// revoke ends a bound token, and waits until the API server, which remembers tokens for ten seconds, does not accept it.
func (w world) revoke(ctx context.Context, name, token string) {
	GinkgoHelper()
	Expect(cluster.CoreV1().Secrets(w.namespace).Delete(ctx, name, metav1.DeleteOptions{})).To(Succeed())
	config, err := clientcmd.BuildConfigFromFlags("", plane.Kubeconfig("admin"))
	Expect(err).NotTo(HaveOccurred())
	config.BearerToken = token
	client, err := kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	Eventually(func() bool {
		_, err := client.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{})
		return apierrors.IsUnauthorized(err)
	}).WithContext(ctx).Should(BeTrue())
}

// renewal is a change of the director's token in the middle of a call.
type renewal struct {
	*apiproxy.Proxy
	mutex  sync.Mutex
	tokens []string // of each request
}

// newRenewal makes a proxy that does something, once, before it passes the third request on. refused is a token that it does not
// accept from then on.
func newRenewal(refused string, do func()) *renewal {
	GinkgoHelper()
	secure, err := apiproxy.NewSecure(plane.Kubeconfig("admin"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(secure.Close)
	r := &renewal{Proxy: secure}
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

// cluster is a kubeconfig's entry for the cluster through the proxy.
func (r *renewal) cluster() map[string]any {
	return map[string]any{"server": r.URL(), "certificate-authority-data": r.Authority()}
}

// sent are the tokens of all requests, in the order of their first use.
func (r *renewal) sent() []string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	var different []string
	for _, token := range r.tokens {
		if len(different) == 0 || different[len(different)-1] != token {
			different = append(different, token)
		}
	}
	return different
}

// createsVM makes a machine by this director, which has to work.
func (w world) createsVM(ctx context.Context, by *director.Director) {
	GinkgoHelper()
	w.Director = by
	w.createVM(ctx, "one")
	Expect(w.objects(ctx)).To(ContainElements("Pod/agent-one", "Secret/agent-one"))
}

// write puts the content into the file at once, as a kubelet does.
func write(path, content string) {
	GinkgoHelper()
	Expect(os.WriteFile(path+".new", []byte(content), 0o600)).To(Succeed())
	Expect(os.Rename(path+".new", path)).To(Succeed())
}

var _ = Describe("A call with a service account's token that is renewed while it lasts", func() {
	var (
		w         world
		folder    string
		old, next string
	)
	BeforeEach(func(ctx context.Context) {
		w, folder = newWorld(ctx), GinkgoT().TempDir()
		old, next = w.boundToken(ctx, "old"), w.boundToken(ctx, "next")
		write(filepath.Join(folder, "token"), old)
	})

	It("goes on with what its file has by then, when the API server does not accept the one before any more", func(ctx context.Context) {
		renewed := newRenewal("", func() {
			write(filepath.Join(folder, "token"), next)
			w.revoke(ctx, "old", old)
		})
		w.createsVM(ctx, w.reaching(renewed.cluster(), map[string]any{"tokenFile": filepath.Join(folder, "token")}))
		Expect(renewed.sent()).To(Equal([]string{old, next}))
		asked := renewed.Requests()
		Expect(asked[3]).To(Equal(asked[2]), "the refused request, again")
	})

	It("goes on with the one that the kubelet has put into its Pod by then", func(ctx context.Context) {
		renewed := newRenewal(old, func() { write(filepath.Join(folder, "token"), next) })
		write(filepath.Join(folder, "ca.crt"), string(renewed.Authority()))
		write(filepath.Join(folder, "namespace"), w.namespace)
		inPod := w.with("kubernetes", map[string]any{})
		inPod.CPI = inPodOf(folder, renewed.URL())
		w.createsVM(ctx, inPod)
		Expect(renewed.sent()).To(Equal([]string{old, next}))
	})

	It("tells which token is not accepted where the file has no other", func(ctx context.Context) {
		renewed := newRenewal(old, func() {})
		d := w.reaching(renewed.cluster(), map[string]any{"tokenFile": filepath.Join(folder, "token")})
		response, err := d.Call(ctx, "create_vm", "one", stemcellCID, w.vm, onDynamic(), []string{}, map[string]any{})
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Error).To(And(HaveField("OkToRetry", false), HaveField("Message", And(
			ContainSubstring("does not accept the token of the file "+filepath.Join(folder, "token")), ContainSubstring("docs/credentials.md")))))
	})
})

// inPodOf is the CPI as it is in a Pod with the service account of the folder: a program that sees the folder where the kubelet
// puts it. That takes a mount namespace of its own.
func inPodOf(folder, url string) string {
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
`, host, port, unshare, folder, program), 0o700)).To(Succeed())
	return path
}

// plugin is a program that gives credentials, as clouds have them, and counts how often it is asked.
type plugin struct{ folder string }

// newPlugin makes one that gives this token.
func newPlugin(token string) plugin {
	GinkgoHelper()
	p := plugin{GinkgoT().TempDir()}
	p.gives(token, time.Time{})
	Expect(os.WriteFile(p.command(), fmt.Appendf(nil, "#!/bin/sh\necho asked >>%[1]s/asked\ncat %[1]s/answer\n", p.folder), 0o700)).To(Succeed())
	return p
}

func (p plugin) command() string { return filepath.Join(p.folder, "credentials-of-the-cloud") }

// gives sets the token that the program gives from now on, and its end, unless that is zero.
func (p plugin) gives(token string, until time.Time) {
	GinkgoHelper()
	expires := ""
	if !until.IsZero() {
		expires = fmt.Sprintf(`, "expirationTimestamp": %q`, until.UTC().Format(time.RFC3339))
	}
	write(filepath.Join(p.folder, "answer"), fmt.Sprintf(
		`{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": %q%s}}`, token, expires))
}

// asked is how often the program has been run.
func (p plugin) asked() int {
	GinkgoHelper()
	raw, err := os.ReadFile(filepath.Join(p.folder, "asked"))
	Expect(err).NotTo(HaveOccurred())
	return strings.Count(string(raw), "asked")
}

// user is a kubeconfig's entry for a user with this program.
func user(command string) map[string]any {
	return map[string]any{"exec": map[string]any{"apiVersion": "client.authentication.k8s.io/v1", "command": command, "interactiveMode": "Never"}}
}

var _ = Describe("A call with the credentials of a program", func() {
	var (
		w         world
		old, next string
	)
	BeforeEach(func(ctx context.Context) {
		w = newWorld(ctx)
		old, next = w.boundToken(ctx, "old"), w.boundToken(ctx, "next")
	})

	It("runs it once", func(ctx context.Context) {
		its := newPlugin(old)
		w.createsVM(ctx, w.direct(user(its.command())))
		Expect(its.asked()).To(Equal(1))
	})

	It("runs it again when they end in the middle", func(ctx context.Context) {
		its := newPlugin("")
		ends := time.Now().Add(2 * time.Second)
		its.gives(old, ends)
		renewed := newRenewal("", func() {
			its.gives(next, time.Now().Add(time.Hour))
			Eventually(time.Now).Should(BeTemporally(">", ends))
		})
		w.createsVM(ctx, w.reaching(renewed.cluster(), user(its.command())))
		Expect(renewed.sent()).To(Equal([]string{old, next}))
		Expect(its.asked()).To(Equal(2))
	})

	It("runs it again when the API server does not accept them any more", func(ctx context.Context) {
		its := newPlugin(old)
		renewed := newRenewal(old, func() { its.gives(next, time.Time{}) })
		w.createsVM(ctx, w.reaching(renewed.cluster(), user(its.command())))
		Expect(renewed.sent()).To(Equal([]string{old, next}))
		Expect(its.asked()).To(Equal(2))
	})

	It("that is not there names it at once, and says what a director's VM has instead", func(ctx context.Context) {
		started := time.Now()
		response, err := w.direct(user("credentials-of-nowhere")).Call(ctx, "has_vm", "agent-one")
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Error).To(And(HaveField("Type", "Bosh::Clouds::CloudError"), HaveField("Message", And(
			ContainSubstring("has the program credentials-of-nowhere give the credentials, and this machine does not have it"),
			ContainSubstring("the service account of its Pod, or by a token"), ContainSubstring("docs/credentials.md")))))
		Expect(time.Since(started)).To(BeNumerically("<", 20*time.Second), "and is not looked for again and again, for 30 s")
		Expect(checked(ctx, w.direct(user("credentials-of-nowhere"))).results["api"]).To(
			are(preflight.Fails, "the program credentials-of-nowhere", "correct the user's entry in kubernetes.kubeconfig"))
	})

	It("that fails names it, and is tried for as long as any request", func(ctx context.Context) {
		its := newPlugin(old)
		Expect(os.WriteFile(its.command(), fmt.Appendf(nil, "#!/bin/sh\necho asked >>%s/asked\nexit 3\n", its.folder), 0o700)).To(Succeed())
		response, err := w.direct(user(its.command())).Call(ctx, "create_vm", "one", stemcellCID, w.vm, onDynamic(), []string{}, map[string]any{})
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Error).To(And(HaveField("OkToRetry", false), HaveField("Message", And(
			ContainSubstring("the program "+its.command()+", which is to give the credentials, gave none"), ContainSubstring("exit code 3")))))
		Expect(its.asked()).To(BeNumerically(">", 1))
	})
})
