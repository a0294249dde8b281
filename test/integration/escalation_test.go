package integration

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// prey is what somebody with a role of this project's would like to reach, around the namespace that the role is for.
type prey struct {
	own    string // the namespace, with a service account called other
	victim string // another namespace, with a Secret and a Pod called victim
	csr    string // a certificate signing request that nobody has approved
	vm     string // a machine in the own namespace
}

func newPrey(ctx context.Context, w world) prey {
	GinkgoHelper()
	p := prey{own: w.namespace, victim: w.namespace + "-victim", csr: w.namespace, vm: w.createVM(ctx, "one")}
	core := cluster.CoreV1()
	_, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.victim}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	confine(ctx, p.victim) // so that a Pod is admitted there
	_, err = core.ServiceAccounts(p.own).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	for _, namespace := range []string{p.victim, metav1.NamespaceSystem} {
		Eventually(func() error {
			_, err := core.ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
			return err
		}).WithContext(ctx).Should(Succeed())
	}
	_, err = core.Secrets(p.victim).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "victim"}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	victim := podOf("victim", "default")
	victim.Annotations = map[string]string{"test/hold": "an address, to which the API server would go on"}
	_, err = core.Pods(p.victim).Create(ctx, victim, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = cluster.CertificatesV1().CertificateSigningRequests().Create(ctx, signingRequest(p.csr), metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) {
		Expect(cluster.CertificatesV1().CertificateSigningRequests().Delete(ctx, p.csr, metav1.DeleteOptions{})).To(Succeed())
	})
	return p
}

// holder is somebody who has what files of this project give.
type holder struct {
	files  []string
	user   string
	config *rest.Config
}

// newHolder returns the service account with a token.
func newHolder(ctx context.Context, namespace, account string, files ...string) holder {
	GinkgoHelper()
	token, err := cluster.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	config, err := clientcmd.BuildConfigFromFlags("", plane.Kubeconfig("admin"))
	Expect(err).NotTo(HaveOccurred())
	config.BearerToken, config.QPS = token.Status.Token, -1
	return holder{files: files, user: "system:serviceaccount:" + namespace + ":" + account, config: config}
}

// newPerson returns somebody who is to have rights in the namespace, and has an account elsewhere.
func newPerson(ctx context.Context, w world, name string, files ...string) holder {
	GinkgoHelper()
	people := w.namespace + "-people"
	_, err := cluster.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: people}}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		Expect(err).NotTo(HaveOccurred())
	}
	_, err = cluster.CoreV1().ServiceAccounts(people).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return newHolder(ctx, people, name, files...)
}

// kubeconfig writes one for the holder.
func (h holder) kubeconfig() string {
	GinkgoHelper()
	config, err := clientcmd.LoadFromFile(plane.Kubeconfig("admin"))
	Expect(err).NotTo(HaveOccurred())
	config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo].Token = h.config.BearerToken
	path := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(clientcmd.WriteToFile(*config, path)).To(Succeed())
	return path
}

// awaits waits until the holder has one of the rights that were given.
func (h holder) awaits(ctx context.Context, right authorizationv1.ResourceAttributes) holder {
	GinkgoHelper()
	Eventually(func() (bool, error) { return userMay(ctx, h.user, right) }).WithContext(ctx).Should(BeTrue(), "%v", right)
	return h
}

// holders are all who have a role that this project ships.
func holders(ctx context.Context, w world) []holder {
	GinkgoHelper()
	// The CPI, which has the rights of all worlds, and those of checks besides.
	grant(ctx, w.namespace, rightsDocuments(rightsOfChecks))
	ofCPI := newHolder(ctx, w.namespace, "bosh-cpi", "docs/rbac.yaml", "docs/rbac-networks.yaml", "docs/rbac-prefetch.yaml", "docs/rbac-check.yaml").
		awaits(ctx, authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods"})

	// Whoever runs the commands for machines.
	operator := newPerson(ctx, w, "operator", "docs/rbac-kubectl-bosh.yaml")
	grant(ctx, w.namespace, rightsDocuments("../../docs/rbac-kubectl-bosh.yaml")+"\n---\n"+fmt.Sprintf(`apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: operator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: bosh-operator}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %q}]
`, operator.user))
	operator.awaits(ctx, authorizationv1.ResourceAttributes{Verb: "create", Resource: "pods", Subresource: "exec", Namespace: w.namespace})

	// Whoever runs kubectl bosh up with what --print-rights prints.
	bringer := newPerson(ctx, w, "bringer", "docs/rbac-kubectl-bosh-up.yaml")
	plugin := filepath.Join(GinkgoT().TempDir(), "kubectl-bosh")
	build := exec.CommandContext(ctx, "go", "build", "-o", plugin, "bosh-kubernetes-cpi/cmd/kubectl-bosh")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	printed, err := exec.CommandContext(ctx, plugin, "up", "--print-rights", "--kubeconfig", bringer.kubeconfig(), "--namespace", w.namespace).Output()
	Expect(err).NotTo(HaveOccurred())
	Expect(plane.Apply(ctx, string(printed))).To(Succeed())
	bringer.awaits(ctx, authorizationv1.ResourceAttributes{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Name: "bosh-cpi", Namespace: w.namespace})
	bringer.awaits(ctx, authorizationv1.ResourceAttributes{Verb: "list", Resource: "nodes"})

	// The CNI shim on the nodes, and its installer.
	manifest := document("docs/cni-shim/daemonset.yaml")
	rights, _, found := strings.Cut(manifest, "---\napiVersion: apps/v1\n")
	Expect(found).To(BeTrue(), "the accounts and rights come before the DaemonSet")
	Expect(plane.Apply(ctx, rights)).To(Succeed())
	shim := newHolder(ctx, "bosh-cni-shim", "bosh-cni-shim", "docs/cni-shim/daemonset.yaml").
		awaits(ctx, authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods", Namespace: w.namespace})
	installer := newHolder(ctx, "bosh-cni-shim", "bosh-cni-shim-installer", "docs/cni-shim/daemonset.yaml").
		awaits(ctx, authorizationv1.ResourceAttributes{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Name: "bosh-cni-shim", Namespace: "bosh-cni-shim"})
	return []holder{ofCPI, operator, bringer, shim, installer}
}

// podOf is a Pod with this service account.
func podOf(name, account string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{ServiceAccountName: account,
		Containers: []corev1.Container{{Name: "c", Image: "registry.example.com/image:1"}}}}
}

// refused reports whether a request failed because whoever made it may not: by a missing right, or by a rule of the admission policy.
func refused(err error) bool {
	return apierrors.IsForbidden(err) || err != nil && strings.Contains(err.Error(), "denied request: rule ")
}

// asWhoMay reports whether the outcome is that of somebody who has the right: what the request is for, an error about the stream
// that it does not open, or that the admission policy knows no limits for the namespace.
func (e escalation) asWhoMay(err error) bool {
	return err == nil || e.connects && !refused(err) || strings.Contains(err.Error(), "no params found for policy binding")
}

var _ = Describe("Every role that this project ships", func() {
	It("gives nobody a way to another namespace's content, or to rights over the cluster", func(ctx context.Context) {
		w := newWorld(ctx)
		p := newPrey(ctx, w)
		all := escalations()
		Expect(len(all)).To(BeNumerically(">=", 60))

		// What an administrator could not do either would prove nothing.
		administrator, err := clientcmd.BuildConfigFromFlags("", plane.Kubeconfig("admin"))
		Expect(err).NotTo(HaveOccurred())
		administrator.QPS = -1
		var useless []string
		for _, each := range all {
			if err := each.try(ctx, as(administrator), p); !each.asWhoMay(err) {
				useless = append(useless, each.what+": "+err.Error())
			}
		}
		Expect(useless).To(BeEmpty(), "attempts that fail for other reasons than missing rights")

		var table strings.Builder
		rows := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
		var succeeded []string
		for _, h := range holders(ctx, w) {
			count := 0
			for _, each := range all {
				err := each.try(ctx, as(h.config), p)
				if refused(err) {
					count++
				} else {
					succeeded = append(succeeded, fmt.Sprintf("%s, with %s: %s: %v", h.user, strings.Join(h.files, ", "), each.what, err))
				}
			}
			fmt.Fprintf(rows, "%s\t%s\t%d of %d refused\n", h.user, strings.Join(h.files, ", "), count, len(all))
		}
		Expect(rows.Flush()).To(Succeed())
		AddReportEntry("attempts to get more rights", "\n"+table.String(), ReportEntryVisibilityAlways)
		Expect(succeeded).To(BeEmpty())
	}, NodeTimeout(5*time.Minute))

	It("is among those that are tried", func() {
		var shipped []string
		for _, folder := range []string{"docs", "manifests", "jobs"} {
			Expect(filepath.WalkDir("../../"+folder, func(path string, entry os.DirEntry, err error) error {
				if err != nil || entry.IsDir() {
					return err
				}
				content, err := os.ReadFile(path)
				if ext := filepath.Ext(path); (ext == ".yaml" || ext == ".yml") && regexp.MustCompile(`(?m)^kind: (Cluster)?Role$`).Match(content) {
					shipped = append(shipped, strings.TrimPrefix(path, "../../"))
				}
				return err
			})).To(Succeed())
		}
		Expect(shipped).To(ConsistOf("docs/rbac.yaml", "docs/rbac-networks.yaml", "docs/rbac-prefetch.yaml", "docs/rbac-check.yaml",
			"docs/rbac-kubectl-bosh.yaml", "docs/rbac-kubectl-bosh-up.yaml", "docs/cni-shim/daemonset.yaml"))
	})

	It("changes nothing cluster-wide, but for the pools of managed networks", func() {
		var changing []string
		for _, path := range []string{"docs/rbac.yaml", "docs/rbac-networks.yaml", "docs/rbac-check.yaml", "docs/rbac-kubectl-bosh-up.yaml", "docs/cni-shim/daemonset.yaml"} {
			for text := range strings.SplitSeq(document(path), "\n---\n") {
				var role rbacv1.ClusterRole
				Expect(yaml.Unmarshal([]byte(text), &role)).To(Succeed())
				for _, rule := range role.Rules {
					reads := func(verb string) bool { return slices.Contains([]string{"get", "list", "watch"}, verb) }
					if role.Kind == "ClusterRole" && !slices.ContainsFunc(rule.Verbs, func(verb string) bool { return !reads(verb) }) {
						continue
					}
					if role.Kind == "ClusterRole" {
						changing = append(changing, path+": "+strings.Join(rule.Resources, ", "))
					}
				}
			}
		}
		Expect(changing).To(ConsistOf("docs/rbac-networks.yaml: ippools", "docs/rbac-networks.yaml: ipreservations"))
	})
})

// certificateRequest asks for a client's certificate; of system:masters the API server would take no request at all.
func certificateRequest() []byte {
	GinkgoHelper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	raw, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "attacker", Organization: []string{"bosh-operators"}}}, key)
	Expect(err).NotTo(HaveOccurred())
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: raw})
}

func signingRequest(name string) *certificatesv1.CertificateSigningRequest {
	return &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certificatesv1.CertificateSigningRequestSpec{
		Request: certificateRequest(), SignerName: certificatesv1.KubeAPIServerClientSignerName, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth}}}
}

// escalator is somebody who tries to get more rights.
type escalator struct {
	kubernetes.Interface
	config *rest.Config
}

func as(config *rest.Config) escalator {
	GinkgoHelper()
	client, err := kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	return escalator{client, config}
}

// impersonating is the same somebody, in another one's name.
func (e escalator) impersonating(who rest.ImpersonationConfig) kubernetes.Interface {
	GinkgoHelper()
	config := rest.CopyConfig(e.config)
	config.Impersonate = who
	return as(config)
}

// does sends a request that no client makes: with this path, and without a body.
func (e escalator) does(ctx context.Context, verb, path string) error {
	return e.CoreV1().RESTClient().Verb(verb).AbsPath(path).Do(ctx).Error()
}
