package main_test

import (
	"context"
	"os"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/test/apiproxy"
)

const upRights = "../../docs/rbac-kubectl-bosh-up.yaml"

// bringer has g be run by somebody with the documented rights, behind a proxy that notes which of them are used.
func (g *ground) bringer(ctx context.Context) *apiproxy.Proxy {
	GinkgoHelper()
	w := newWorld(ctx)
	content, err := os.ReadFile(upRights)
	Expect(err).NotTo(HaveOccurred())
	Expect(plane.Apply(ctx, string(content))).To(Succeed())
	account, err := cluster.CoreV1().ServiceAccounts(w.namespace).Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "bringer"}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = cluster.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "bosh-up-" + w.namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "bosh-up"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.namespace, Name: account.Name}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	Eventually(func() (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:" + w.namespace + ":" + account.Name,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "create", Resource: "namespaces"},
		}}
		answer, err := cluster.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		return err == nil && answer.Status.Allowed, err
	}).WithContext(ctx).Should(BeTrue())
	token, err := cluster.CoreV1().ServiceAccounts(w.namespace).CreateToken(ctx, account.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	proxy, err := apiproxy.New(plane.Kubeconfig("admin"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(proxy.Close)
	proxy.As(token.Status.Token)
	g.as = g.path("bringer.kubeconfig")
	Expect(proxy.Kubeconfig(g.as, "default")).To(Succeed())
	return proxy
}

// rightsOf are those of a file's first Role, as "verb resource".
func rightsOf(path string, but ...rbacv1.PolicyRule) []string {
	GinkgoHelper()
	content, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	var role rbacv1.ClusterRole
	Expect(yaml.Unmarshal(content, &role)).To(Succeed())
	elsewhere, found := list(but), []string{}
	for _, right := range list(role.Rules) {
		if !slices.Contains(elsewhere, right) {
			found = append(found, right)
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
		{"label", "namespace", g.namespace, "pod-security.kubernetes.io/enforce-"},
		{"patch", "role", "bosh-cpi", "--namespace", g.namespace, "--type=merge", "--patch", `{"rules":[]}`},
		{"patch", "rolebinding", "bosh-cpi", "--namespace", g.namespace, "--type=merge", "--patch", `{"subjects":[]}`},
		{"patch", "clusterrole", name, "--type=merge", "--patch", `{"rules":[]}`},
		{"patch", "clusterrolebinding", name, "--type=merge", "--patch", `{"subjects":[]}`},
	} {
		_, err := plane.Kubectl(ctx, each...)
		Expect(err).NotTo(HaveOccurred())
	}
}

var _ = Describe("kubectl bosh up and down, with exactly the documented rights", func() {
	It("make a director, mend what has been changed, and take it away, and need each of the rights", func(ctx SpecContext) {
		calico(ctx)
		g := newDoer()
		proxy := g.bringer(ctx)
		Expect(g.up("--network", "service", "--credentials", "kubeconfig")).To(gexec.Exit(0))
		g.spoil(ctx)
		session := g.run("y\n", "up", "--bosh", "./create-env")
		Expect(session).To(gexec.Exit(0))
		for _, changed := range []string{"Namespace", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"} {
			Expect(session.Out).To(gbytes.Say(changed + ` \S+: changed\n`))
		}
		Expect(g.down()).To(gexec.Exit(0))
		g.gone(ctx)

		ofCPI := append(rules("Role"), rules("ClusterRole")...)
		var operator rbacv1.Role
		content, err := os.ReadFile("../../docs/rbac-kubectl-bosh.yaml")
		Expect(err).NotTo(HaveOccurred())
		Expect(yaml.Unmarshal(content, &operator)).To(Succeed())
		Expect(rightsOf(upRights)).To(ContainElements(list(ofCPI)), "nobody can give what he has not")
		Expect(proxy.Rights()).To(ContainElements(rightsOf(upRights, append(ofCPI, operator.Rules...)...)), "nothing needs what is not used")
	})
})
