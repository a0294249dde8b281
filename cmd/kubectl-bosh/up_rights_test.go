package main_test

import (
	"context"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/kube/manifest"
	"bosh-kubernetes-cpi/test/apiproxy"
)

const upRights = "../../docs/rbac-kubectl-bosh-up.yaml"

// bringer is somebody who is to have the rights that --print-rights prints, and has none yet.
type bringer struct {
	user  string
	token string

	mutex sync.Mutex
	used  map[string]bool // rights, as "verb resource"
}

// newBringer has g be run by one, behind a proxy that notes which rights are used by that token, and not by the CPI's.
func newBringer(ctx context.Context, g *ground) *bringer {
	GinkgoHelper()
	w := newWorld(ctx)
	account, err := cluster.CoreV1().ServiceAccounts(w.namespace).Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "bringer"}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	token, err := cluster.CoreV1().ServiceAccounts(w.namespace).CreateToken(ctx, account.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	b := &bringer{user: "system:serviceaccount:" + w.namespace + ":" + account.Name, token: token.Status.Token, used: map[string]bool{}}
	proxy, path := g.otherName()
	proxy.Reset(b.notes)
	config, err := clientcmd.LoadFromFile(path)
	Expect(err).NotTo(HaveOccurred())
	config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo].Token = b.token
	g.as = g.path("bringer.kubeconfig")
	Expect(clientcmd.WriteToFile(*config, g.as)).To(Succeed())
	return b
}

func (b *bringer) notes(_ int, answer http.ResponseWriter, request *http.Request, next http.Handler) {
	if request.Header.Get("Authorization") == "Bearer "+b.token {
		verb, resource, _ := apiproxy.ParseRequest(request)
		b.mutex.Lock()
		b.used[verb+" "+resource] = true
		b.mutex.Unlock()
	}
	next.ServeHTTP(answer, request)
}

// rights are those that were used.
func (b *bringer) rights() []string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return slices.Collect(maps.Keys(b.used))
}

// printed are the rights for whoever runs it, as an administrator gets them.
func (g ground) printed(more ...string) string {
	GinkgoHelper()
	session := g.run("", append([]string{"up", "--print-rights", "--namespace", g.namespace}, more...)...)
	Expect(session).To(gexec.Exit(0))
	Expect(g.path("kubernetes")).NotTo(BeADirectory())
	return string(session.Out.Contents())
}

// applies has an administrator apply rights, and waits until the user has them.
func (g ground) applies(ctx context.Context, rights, user string) {
	GinkgoHelper()
	Expect(plane.Apply(ctx, rights)).To(Succeed())
	Eventually(func() (bool, error) { return g.may(ctx, user, "create", "pods", "portforward") }).WithContext(ctx).Should(BeTrue())
	Eventually(func() (bool, error) { return g.may(ctx, user, "list", "nodes", "") }).WithContext(ctx).Should(BeTrue())
}

// may reports whether the user has a right in the namespace.
func (g ground) may(ctx context.Context, user, verb, resource, subresource string) (bool, error) {
	answer, err := cluster.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: g.namespace, Verb: verb, Resource: resource, Subresource: subresource}}}, metav1.CreateOptions{})
	return err == nil && answer.Status.Allowed, err
}

// rightsOf are those of a file's Roles and ClusterRoles, as "verb resource".
func rightsOf(path string, but ...rbacv1.PolicyRule) []string {
	GinkgoHelper()
	content, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	elsewhere, found := list(but), []string{}
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		var role rbacv1.ClusterRole
		Expect(yaml.Unmarshal([]byte(document), &role)).To(Succeed())
		for _, right := range list(role.Rules) {
			if !slices.Contains(elsewhere, right) {
				found = append(found, right)
			}
		}
	}
	return found
}

func list(rules []rbacv1.PolicyRule) (all []string) {
	for _, rule := range rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				all = append(all, verb+" "+resource)
			}
		}
	}
	return all
}

// spoil takes from what up has made all that is wanted of it.
func (g ground) spoil(ctx context.Context) {
	GinkgoHelper()
	name := "bosh-cpi-" + g.namespace
	for _, each := range [][]string{
		{"patch", "role", "bosh-cpi", "--namespace", g.namespace, "--type=merge", "--patch", `{"rules":[]}`},
		{"patch", "rolebinding", "bosh-cpi", "--namespace", g.namespace, "--type=merge", "--patch", `{"subjects":[]}`},
		{"patch", "clusterrole", name, "--type=merge", "--patch", `{"rules":[]}`},
		{"patch", "clusterrolebinding", name, "--type=merge", "--patch", `{"subjects":[]}`},
	} {
		_, err := plane.Kubectl(ctx, each...)
		Expect(err).NotTo(HaveOccurred())
	}
}

// keptService makes a Service as the director's CPI makes one that outlives VMs.
func (g ground) keptService(ctx context.Context) {
	GinkgoHelper()
	_, err := cluster.CoreV1().Services(g.namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "bosh-director", Labels: map[string]string{manifest.LabelManagedBy: manifest.ManagedBy,
			manifest.LabelDirector: "create-envs-own"}, Annotations: map[string]string{manifest.AnnotationKeep: "true"}},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 25555}}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

var _ = Describe("kubectl bosh up and down as an administrator", func() {
	It("mend rights that have been changed", func(ctx SpecContext) {
		g := newDoer()
		Expect(g.up()).To(gexec.Exit(0))
		g.spoil(ctx)
		session := g.run("y\n", "up", "--bosh", "./create-env")
		Expect(session).To(gexec.Exit(0))
		for _, changed := range []string{"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"} {
			Expect(session.Out).To(gbytes.Say(`(?m)^` + changed + ` \S+: changed\n`))
		}
	})
})

var _ = Describe("kubectl bosh up --print-rights", func() {
	var (
		g    ground
		b    *bringer
		user string
	)
	BeforeEach(func(ctx SpecContext) {
		g = newDoer()
		b = newBringer(ctx, &g)
		user = b.user
	})

	It("prints what is enough for up and down, all of which they use", func(ctx SpecContext) {
		calico(ctx)
		nameServers(ctx)
		g.applies(ctx, g.printed("--credentials", "kubeconfig"), user)
		session := g.up("--network", "service", "--credentials", "kubeconfig")
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(`rights +all that this takes\n`))
		Expect(session.Out).To(gbytes.Say(`kube-dns\n`))
		for _, prepared := range []string{"Namespace", "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "Secret"} {
			Expect(session.Out).To(gbytes.Say(prepared + ` \S+: is there\n`))
		}
		g.answers(ctx, g.path("kubernetes/cpi.kubeconfig"))
		Expect(g.recorded().UID).To(Equal(systemUID(ctx)))

		g.keptService(ctx)
		session = g.down()
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(`Service \S+/bosh-director: deleted\n`))
		Expect(session.Out).To(gbytes.Say("Namespace \\S+: stays: `up` has not made it\n"))

		var operator rbacv1.Role
		content, err := os.ReadFile("../../docs/rbac-kubectl-bosh.yaml")
		Expect(err).NotTo(HaveOccurred())
		Expect(yaml.Unmarshal(content, &operator)).To(Succeed())
		Expect(b.rights()).To(ContainElements(rightsOf(upRights, operator.Rules...)), "nothing needs what is not used")
	})

	It("prints rights with which up goes on although it may not mend those of the CPI", func(ctx SpecContext) {
		g.applies(ctx, g.printed(), user)
		_, err := plane.Kubectl(ctx, "label", "role", "bosh-cpi", "--namespace", g.namespace, "other=label")
		Expect(err).NotTo(HaveOccurred())
		_, err = plane.Kubectl(ctx, "patch", "role", "bosh-cpi", "--namespace", g.namespace, "--type=json",
			"--patch", `[{"op": "add", "path": "/rules/-", "value": {"apiGroups": [""], "resources": ["endpoints"], "verbs": ["get"]}}]`)
		Expect(err).NotTo(HaveOccurred())
		session := g.up()
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(`(?m)^Role \S+: stays: it is not as rights\.yaml has it, and you may not change it\n`))
	})

	It("prints nothing that makes a new namespace, another one's objects or other rights possible", func(ctx SpecContext) {
		g.applies(ctx, g.printed(), user)
		g.namespace = newGround().namespace
		session := g.up("--address", "10.246.0.79")
		Expect(session).To(gexec.Exit(1))
		Expect(session.Out).To(gbytes.Say(`rights +missing: create namespaces, create serviceaccounts, create roles, .*; .kubectl bosh up --print-rights. prints`))
		Expect(session.Err).To(gbytes.Say("^error: Namespace " + g.namespace + `: .*cannot get resource.*; an administrator can apply what ` +
			"`kubectl bosh up --print-rights --namespace " + g.namespace + "` prints"))
	})

	It("prints the reasons, and what is cluster-wide", func() {
		printed := g.printed()
		for line := range strings.SplitSeq(printed, "\n") {
			Expect(line).NotTo(MatchRegexp(`[- ]bosh$`), "the namespace of docs/rbac.yaml")
		}
		Expect(printed).To(HavePrefix("# What the user \"" + user + "\" needs to run \"kubectl bosh up\" and \"down\" in namespace " + g.namespace + "."))
		Expect(printed).To(ContainSubstring("# Cluster-wide are: "))
		Expect(printed).To(ContainSubstring("# A token of the CPI, by which create-env works:"))
		Expect(printed).To(ContainSubstring("# Agents' settings, and the registry's credentials."))
	})

	It("prints rights in the namespace of the flag, also where there is a folder for another one", func() {
		first := g.namespace
		g.as = plane.Kubeconfig("admin")
		g.plans()
		g.namespace = newGround().namespace
		session := g.run("", "up", "--print-rights", "--namespace", g.namespace)
		Expect(session).To(gexec.Exit(0))
		Expect(string(session.Out.Contents())).To(And(ContainSubstring("\n  namespace: "+g.namespace+"\n"), Not(ContainSubstring(first))))
	})

	It("leaves another user the rights that were given before", func(ctx SpecContext) {
		g.as = plane.Kubeconfig("admin")
		for _, name := range []string{"jane@example.com", `https://issuer.example.com/a%2Fb#"joe": x`} {
			g.applies(ctx, g.printed("--as", name), name)
		}
		Expect(g.may(ctx, "jane@example.com", "create", "pods", "portforward")).To(BeTrue())
		Expect(g.may(ctx, "jane@example.com", "list", "nodes", "")).To(BeTrue())
	})
})
