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

// escalationTarget contains objects that a subject with a role of this project must not access or change.
type escalationTarget struct {
	namespace       string // the namespace of the role, with a service account named other
	victimNamespace string // another namespace, with a Secret and a Pod named victim
	csr             string // a CertificateSigningRequest that was not approved
	vm              string // a VM in namespace
}

func newEscalationTarget(ctx context.Context, env testEnv) escalationTarget {
	GinkgoHelper()
	t := escalationTarget{namespace: env.namespace, victimNamespace: env.namespace + "-victim", csr: env.namespace, vm: env.createVM(ctx, "one")}
	core := cluster.CoreV1()
	_, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: t.victimNamespace}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	createAdmissionLimits(ctx, t.victimNamespace) // otherwise the admission policy rejects Pods
	_, err = core.ServiceAccounts(t.namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	for _, namespace := range []string{t.victimNamespace, metav1.NamespaceSystem} {
		Eventually(func() error {
			_, err := core.ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
			return err
		}).WithContext(ctx).Should(Succeed())
	}
	_, err = core.Secrets(t.victimNamespace).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "victim"}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	victim := podWithServiceAccount("victim", "default")
	victim.Annotations = map[string]string{"test/hold": "without an address, the API server does not forward requests to the Pod"}
	_, err = core.Pods(t.victimNamespace).Create(ctx, victim, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = cluster.CertificatesV1().CertificateSigningRequests().Create(ctx, newCSR(t.csr), metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) {
		Expect(cluster.CertificatesV1().CertificateSigningRequests().Delete(ctx, t.csr, metav1.DeleteOptions{})).To(Succeed())
	})
	return t
}

// rbacSubject is a user or service account with the permissions in files.
type rbacSubject struct {
	files  []string
	user   string
	config *rest.Config
}

// newServiceAccountSubject returns a subject that authenticates with a token of the service account.
func newServiceAccountSubject(ctx context.Context, namespace, account string, files ...string) rbacSubject {
	GinkgoHelper()
	token, err := cluster.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	config, err := clientcmd.BuildConfigFromFlags("", plane.Kubeconfig("admin"))
	Expect(err).NotTo(HaveOccurred())
	config.BearerToken, config.QPS = token.Status.Token, -1
	return rbacSubject{files: files, user: "system:serviceaccount:" + namespace + ":" + account, config: config}
}

// newUserSubject returns a subject for permissions in the environment's namespace. Its service account is in another namespace.
func newUserSubject(ctx context.Context, env testEnv, name string, files ...string) rbacSubject {
	GinkgoHelper()
	accountNamespace := env.namespace + "-people"
	_, err := cluster.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: accountNamespace}}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		Expect(err).NotTo(HaveOccurred())
	}
	_, err = cluster.CoreV1().ServiceAccounts(accountNamespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return newServiceAccountSubject(ctx, accountNamespace, name, files...)
}

// writeKubeconfig writes a kubeconfig for the subject, and returns its path.
func (s rbacSubject) writeKubeconfig() string {
	GinkgoHelper()
	config, err := clientcmd.LoadFromFile(plane.Kubeconfig("admin"))
	Expect(err).NotTo(HaveOccurred())
	config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo].Token = s.config.BearerToken
	path := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(clientcmd.WriteToFile(*config, path)).To(Succeed())
	return path
}

// waitForPermission waits until the subject has the permission.
func (s rbacSubject) waitForPermission(ctx context.Context, permission authorizationv1.ResourceAttributes) rbacSubject {
	GinkgoHelper()
	Eventually(func() (bool, error) { return userMay(ctx, s.user, permission) }).WithContext(ctx).Should(BeTrue(), "%v", permission)
	return s
}

// rbacSubjects returns a subject for each role that this project ships.
func rbacSubjects(ctx context.Context, env testEnv) []rbacSubject {
	GinkgoHelper()
	// The CPI, with the optional permissions for preflight checks.
	applyRBAC(ctx, env.namespace, readRBACFiles(checkRBACFile))
	cpi := newServiceAccountSubject(ctx, env.namespace, "bosh-cpi", "manifests/rbac.yaml", "manifests/rbac-check.yaml").
		waitForPermission(ctx, authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods"})

	// A user of the commands of kubectl bosh for VMs.
	operator := newUserSubject(ctx, env, "operator", "manifests/rbac-kubectl-bosh.yaml")
	applyRBAC(ctx, env.namespace, readRBACFiles("../../manifests/rbac-kubectl-bosh.yaml")+"\n---\n"+fmt.Sprintf(`apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: operator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: bosh-operator}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %q}]
`, operator.user))
	operator.waitForPermission(ctx, authorizationv1.ResourceAttributes{Verb: "create", Resource: "pods", Subresource: "exec", Namespace: env.namespace})

	// A user of kubectl bosh up with the output of --print-permissions.
	upUser := newUserSubject(ctx, env, "up-user", "manifests/rbac-kubectl-bosh-up.yaml")
	plugin := filepath.Join(GinkgoT().TempDir(), "kubectl-bosh")
	build := exec.CommandContext(ctx, "go", "build", "-o", plugin, "bosh-kubernetes-cpi/cmd/kubectl-bosh")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	printed, err := exec.CommandContext(ctx, plugin, "up", "--print-permissions", "--kubeconfig", upUser.writeKubeconfig(), "--namespace", env.namespace).Output()
	Expect(err).NotTo(HaveOccurred())
	Expect(plane.Apply(ctx, string(printed))).To(Succeed())
	upUser.waitForPermission(ctx, authorizationv1.ResourceAttributes{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Name: "bosh-cpi", Namespace: env.namespace})
	upUser.waitForPermission(ctx, authorizationv1.ResourceAttributes{Verb: "list", Resource: "nodes"})

	// The CNI shim on the nodes, and its installer.
	daemonSet := readRepoFile("manifests/cni-shim/daemonset.yaml")
	permissions, _, found := strings.Cut(daemonSet, "---\napiVersion: apps/v1\n")
	Expect(found).To(BeTrue(), "the service accounts and the permissions are before the DaemonSet")
	Expect(plane.Apply(ctx, permissions)).To(Succeed())
	shim := newServiceAccountSubject(ctx, "bosh-cni-shim", "bosh-cni-shim", "manifests/cni-shim/daemonset.yaml").
		waitForPermission(ctx, authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods", Namespace: env.namespace})
	installer := newServiceAccountSubject(ctx, "bosh-cni-shim", "bosh-cni-shim-installer", "manifests/cni-shim/daemonset.yaml").
		waitForPermission(ctx, authorizationv1.ResourceAttributes{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Name: "bosh-cni-shim", Namespace: "bosh-cni-shim"})
	return []rbacSubject{cpi, operator, upUser, shim, installer}
}

// podWithServiceAccount returns a Pod with this service account.
func podWithServiceAccount(name, account string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{ServiceAccountName: account,
		Containers: []corev1.Container{{Name: "c", Image: "registry.example.com/image:1"}}}}
}

// isDenied reports whether a request was denied by RBAC, or by a rule of the admission policy.
func isDenied(err error) bool {
	return apierrors.IsForbidden(err) || err != nil && strings.Contains(err.Error(), "denied request: rule ")
}

// wasAllowed reports whether the subject had the required permission. In that case, the attempt succeeds, does not open the requested
// stream, or fails because the admission policy has no limits for the namespace.
func (e escalation) wasAllowed(err error) bool {
	return err == nil || e.opensStream && !isDenied(err) || strings.Contains(err.Error(), "no params found for policy binding")
}

var _ = Describe("Every role that this project ships", func() {
	It("gives no access to other namespaces, and no way to get more permissions", func(ctx context.Context) {
		env := newTestEnv(ctx)
		t := newEscalationTarget(ctx, env)
		attempts := escalations()
		Expect(len(attempts)).To(BeNumerically(">=", 60))

		// An attempt is valid only if an administrator succeeds with it.
		administrator, _, err := plane.AdminClient()
		Expect(err).NotTo(HaveOccurred())
		var invalid []string
		for _, attempt := range attempts {
			if err := attempt.try(ctx, newEscalationClient(administrator), t); !attempt.wasAllowed(err) {
				invalid = append(invalid, attempt.name+": "+err.Error())
			}
		}
		Expect(invalid).To(BeEmpty(), "these attempts fail even with all permissions")

		var table strings.Builder
		rows := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
		var succeeded []string
		for _, subject := range rbacSubjects(ctx, env) {
			count := 0
			for _, attempt := range attempts {
				err := attempt.try(ctx, newEscalationClient(subject.config), t)
				if isDenied(err) {
					count++
				} else {
					succeeded = append(succeeded, fmt.Sprintf("%s, with %s: %s: %v", subject.user, strings.Join(subject.files, ", "), attempt.name, err))
				}
			}
			fmt.Fprintf(rows, "%s\t%s\t%d of %d denied\n", subject.user, strings.Join(subject.files, ", "), count, len(attempts))
		}
		Expect(rows.Flush()).To(Succeed())
		AddReportEntry("privilege escalation attempts", "\n"+table.String(), ReportEntryVisibilityAlways)
		Expect(succeeded).To(BeEmpty())
	}, NodeTimeout(5*time.Minute))

	It("is a part of this test", func() {
		var shipped []string
		for _, dir := range []string{"docs", "manifests", "jobs"} {
			Expect(filepath.WalkDir("../../"+dir, func(path string, entry os.DirEntry, err error) error {
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
		Expect(shipped).To(ConsistOf("manifests/rbac.yaml", "manifests/rbac-check.yaml",
			"manifests/rbac-kubectl-bosh.yaml", "manifests/rbac-kubectl-bosh-up.yaml", "manifests/cni-shim/daemonset.yaml"))
	})

	It("grants only read access to cluster-scoped objects", func() {
		var writable []string
		for _, path := range []string{"manifests/rbac.yaml", "manifests/rbac-check.yaml", "manifests/rbac-kubectl-bosh-up.yaml", "manifests/cni-shim/daemonset.yaml"} {
			for document := range strings.SplitSeq(readRepoFile(path), "\n---\n") {
				var role rbacv1.ClusterRole
				Expect(yaml.Unmarshal([]byte(document), &role)).To(Succeed())
				for _, rule := range role.Rules {
					isWrite := func(verb string) bool { return !slices.Contains([]string{"get", "list", "watch"}, verb) }
					if role.Kind == "ClusterRole" && !slices.ContainsFunc(rule.Verbs, isWrite) {
						continue
					}
					if role.Kind == "ClusterRole" {
						writable = append(writable, path+": "+strings.Join(rule.Resources, ", "))
					}
				}
			}
		}
		Expect(writable).To(BeEmpty())
	})
})

// encodeCertificateRequest returns a request for a client certificate. It is not for system:masters, because the API server rejects that.
func encodeCertificateRequest() []byte {
	GinkgoHelper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	raw, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "attacker", Organization: []string{"bosh-operators"}}}, key)
	Expect(err).NotTo(HaveOccurred())
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: raw})
}

// newCSR returns a CertificateSigningRequest for a client certificate.
func newCSR(name string) *certificatesv1.CertificateSigningRequest {
	return &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certificatesv1.CertificateSigningRequestSpec{
		Request: encodeCertificateRequest(), SignerName: certificatesv1.KubeAPIServerClientSignerName, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth}}}
}

// escalationClient is a client with the credentials of a subject.
type escalationClient struct {
	kubernetes.Interface
	config *rest.Config
}

func newEscalationClient(config *rest.Config) escalationClient {
	GinkgoHelper()
	client, err := kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	return escalationClient{client, config}
}

// impersonate returns a client that impersonates another user.
func (c escalationClient) impersonate(identity rest.ImpersonationConfig) kubernetes.Interface {
	GinkgoHelper()
	config := rest.CopyConfig(c.config)
	config.Impersonate = identity
	return newEscalationClient(config)
}

// sendRequest sends a request without a body to this path.
func (c escalationClient) sendRequest(ctx context.Context, verb, path string) error {
	return c.CoreV1().RESTClient().Verb(verb).AbsPath(path).Do(ctx).Error()
}
