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

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/test/harness/apiproxy"
)

const upPermissions = "../../manifests/rbac-kubectl-bosh-up.yaml"

// upUser is a user without permissions, who runs up --print-permissions.
type upUser struct {
	user  string
	token string

	mutex sync.Mutex
	used  map[string]bool // permissions, as "verb resource"
}

// newUpUser creates a user and its kubeconfig for the workspace, with a proxy that records the permissions used with the user's token.
func newUpUser(ctx context.Context, ws *workspace) *upUser {
	GinkgoHelper()
	env := newTestEnv(ctx)
	account, err := cluster.CoreV1().ServiceAccounts(env.namespace).Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "up-user"}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	token, err := cluster.CoreV1().ServiceAccounts(env.namespace).CreateToken(ctx, account.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	u := &upUser{user: "system:serviceaccount:" + env.namespace + ":" + account.Name, token: token.Status.Token, used: map[string]bool{}}
	proxy, path := ws.newServerAlias()
	proxy.Reset(u.recordRequest)
	config, err := clientcmd.LoadFromFile(path)
	Expect(err).NotTo(HaveOccurred())
	config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo].Token = u.token
	ws.kubeconfig = ws.path("up-user.kubeconfig")
	Expect(clientcmd.WriteToFile(*config, ws.kubeconfig)).To(Succeed())
	return u
}

func (u *upUser) recordRequest(_ int, response http.ResponseWriter, request *http.Request, next http.Handler) {
	if request.Header.Get("Authorization") == "Bearer "+u.token {
		verb, resource, _ := apiproxy.ParseRequest(request)
		u.mutex.Lock()
		u.used[verb+" "+resource] = true
		u.mutex.Unlock()
	}
	next.ServeHTTP(response, request)
}

// usedPermissions returns the recorded permissions.
func (u *upUser) usedPermissions() []string {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	return slices.Collect(maps.Keys(u.used))
}

// printPermissions returns the output of up --print-permissions.
func (ws workspace) printPermissions(extraArgs ...string) string {
	GinkgoHelper()
	session := ws.run("", append([]string{"up", "--print-permissions", "--namespace", ws.namespace}, extraArgs...)...)
	Expect(session).To(gexec.Exit(0))
	Expect(ws.path("kubernetes")).NotTo(BeADirectory())
	return string(session.Out.Contents())
}

// applyPermissions applies permissions as an administrator, and waits until the user has them.
func (ws workspace) applyPermissions(ctx context.Context, permissions, user string) {
	GinkgoHelper()
	Expect(controlPlane.Apply(ctx, permissions)).To(Succeed())
	Eventually(func() (bool, error) { return ws.isAllowed(ctx, user, "create", "pods", "portforward") }).WithContext(ctx).Should(BeTrue())
	Eventually(func() (bool, error) { return ws.isAllowed(ctx, user, "list", "nodes", "") }).WithContext(ctx).Should(BeTrue())
}

// isAllowed reports whether the user has the permission in the namespace.
func (ws workspace) isAllowed(ctx context.Context, user, verb, resource, subresource string) (bool, error) {
	review, err := cluster.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: ws.namespace, Verb: verb, Resource: resource, Subresource: subresource}}}, metav1.CreateOptions{})
	return err == nil && review.Status.Allowed, err
}

// permissionsOf returns the permissions in the Roles and ClusterRoles of a file, except the permissions of some rules, as "verb resource".
func permissionsOf(path string, except ...rbacv1.PolicyRule) []string {
	GinkgoHelper()
	content, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	excluded, found := flattenRules(except), []string{}
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		var role rbacv1.ClusterRole
		Expect(yaml.Unmarshal([]byte(document), &role)).To(Succeed())
		for _, permission := range flattenRules(role.Rules) {
			if !slices.Contains(excluded, permission) {
				found = append(found, permission)
			}
		}
	}
	return found
}

func flattenRules(rules []rbacv1.PolicyRule) (permissions []string) {
	for _, rule := range rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				permissions = append(permissions, verb+" "+resource)
			}
		}
	}
	return permissions
}

// breakPermissions removes the rules and subjects of the RBAC objects created by up.
func (ws workspace) breakPermissions(ctx context.Context) {
	GinkgoHelper()
	name := "bosh-cpi-" + ws.namespace
	for _, patch := range [][]string{
		{"patch", "role", "bosh-cpi", "--namespace", ws.namespace, "--type=merge", "--patch", `{"rules":[]}`},
		{"patch", "rolebinding", "bosh-cpi", "--namespace", ws.namespace, "--type=merge", "--patch", `{"subjects":[]}`},
		{"patch", "clusterrole", name, "--type=merge", "--patch", `{"rules":[]}`},
		{"patch", "clusterrolebinding", name, "--type=merge", "--patch", `{"subjects":[]}`},
	} {
		_, err := controlPlane.Kubectl(ctx, patch...)
		Expect(err).NotTo(HaveOccurred())
	}
}

// createKeptService creates a Service that remains when VMs are recreated, like the CPI.
func (ws workspace) createKeptService(ctx context.Context) {
	GinkgoHelper()
	_, err := cluster.CoreV1().Services(ws.namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "bosh-director", Labels: map[string]string{manifest.LabelManagedBy: manifest.ManagedBy,
			manifest.LabelDirector: "create-envs-own"}, Annotations: map[string]string{manifest.AnnotationKeep: "true"}},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 25555}}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

var _ = Describe("kubectl bosh up and down as an administrator", func() {
	It("repair changed RBAC objects", func(ctx SpecContext) {
		ws := newWorkspaceWithCLI()
		Expect(ws.up()).To(gexec.Exit(0))
		ws.breakPermissions(ctx)
		session := ws.run("y\n", "up", "--bosh", "./create-env")
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(`(?m)^Role \S+, RoleBinding \S+, ClusterRole \S+, ClusterRoleBinding \S+: updated\n`))
	})
})

var _ = Describe("kubectl bosh up --print-permissions", func() {
	var (
		ws   workspace
		u    *upUser
		user string
	)
	BeforeEach(func(ctx SpecContext) {
		ws = newWorkspaceWithCLI()
		u = newUpUser(ctx, &ws)
		user = u.user
	})

	It("prints exactly the permissions that up and down use", func(ctx SpecContext) {
		createCalico(ctx)
		createDNSService(ctx)
		ws.applyPermissions(ctx, ws.printPermissions("--credentials", "kubeconfig"), user)
		session := ws.up("--network", "service", "--credentials", "kubeconfig")
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(`permissions +sufficient\n`))
		Expect(session.Out).To(gbytes.Say(`kube-dns\)\n`))
		for _, kind := range []string{"Namespace", "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "ResourceQuota"} {
			Expect(session.Out).To(gbytes.Say(kind + ` \S+, `))
		}
		Expect(session.Out).To(gbytes.Say(`Secret \S+: unchanged\n`))
		ws.expectCPIWorks(ctx, ws.path("kubernetes/cpi.kubeconfig"))
		Expect(ws.recordedCluster().UID).To(Equal(systemUID(ctx)))

		ws.createKeptService(ctx)
		session = ws.down()
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(`Service \S+/bosh-director: deleted\n`))
		Expect(session.Out).To(gbytes.Say("Namespace \\S+: kept: not created by `up`\n"))

		var operator rbacv1.Role
		content, err := os.ReadFile("../../manifests/rbac-kubectl-bosh.yaml")
		Expect(err).NotTo(HaveOccurred())
		Expect(yaml.Unmarshal(content, &operator)).To(Succeed())
		Expect(u.usedPermissions()).To(ContainElements(permissionsOf(upPermissions, operator.Rules...)), "unused permissions are not granted")
	})

	It("lets up find an address that no Service of another namespace has", func(ctx SpecContext) {
		createServiceWithAddress(ctx, "10.246.0.60")
		ws.applyPermissions(ctx, ws.printPermissions(), user)
		Expect(ws.up("--network", "service")).To(gexec.Exit(0))
		Expect(ws.vars()).To(HaveKeyWithValue("internal_ip", "10.246.0.61"))
	})

	It("lets up continue if the CPI's Role differs and the user does not have permission to update it", func(ctx SpecContext) {
		ws.applyPermissions(ctx, ws.printPermissions(), user)
		_, err := controlPlane.Kubectl(ctx, "label", "role", "bosh-cpi", "--namespace", ws.namespace, "other=label")
		Expect(err).NotTo(HaveOccurred())
		_, err = controlPlane.Kubectl(ctx, "patch", "role", "bosh-cpi", "--namespace", ws.namespace, "--type=json",
			"--patch", `[{"op": "add", "path": "/rules/-", "value": {"apiGroups": [""], "resources": ["endpoints"], "verbs": ["get"]}}]`)
		Expect(err).NotTo(HaveOccurred())
		session := ws.up()
		Expect(session).To(gexec.Exit(0))
		Expect(session.Out).To(gbytes.Say(`(?m)^Role \S+: unchanged: it differs from permissions\.yaml, but you do not have permission to update it\n`))
	})

	It("grants no permissions to create namespaces, or in other namespaces", func(ctx SpecContext) {
		ws.applyPermissions(ctx, ws.printPermissions(), user)
		ws.namespace = newWorkspace().namespace
		session := ws.up("--address", "10.246.0.79")
		Expect(session).To(gexec.Exit(1))
		Expect(session.Out).To(gbytes.Say(`permissions +missing: create namespaces, create serviceaccounts, create resourcequotas, create roles, .*; an administrator can apply the output of .kubectl bosh up --print-permissions --namespace ` + ws.namespace + `.`))
		Expect(session.Err).To(gbytes.Say("^error: apply Namespace " + ws.namespace + `: .*cannot get resource.*; an administrator can apply the output of ` +
			"`kubectl bosh up --print-permissions --namespace " + ws.namespace + "`"))
	})

	It("explains the permissions, and lists the cluster-wide objects", func() {
		printed := ws.printPermissions()
		for line := range strings.SplitSeq(printed, "\n") {
			Expect(line).NotTo(MatchRegexp(`[- ]bosh$`), "the namespace of manifests/rbac.yaml")
		}
		Expect(printed).To(HavePrefix("# Permissions of user \"" + user + "\" for \"kubectl bosh up\" and \"down\" in namespace " + ws.namespace + "."))
		Expect(printed).To(ContainSubstring("# Cluster-wide objects are: "))
		Expect(printed).To(ContainSubstring("# create-env uses a token of the CPI. "))
		Expect(printed).To(ContainSubstring("# Agent settings, and credentials of the registry."))
	})

	It("uses the namespace of the flag instead of the one of an existing directory", func() {
		first := ws.namespace
		ws.kubeconfig = controlPlane.Kubeconfig("admin")
		ws.planOutput()
		ws.namespace = newWorkspace().namespace
		session := ws.run("", "up", "--print-permissions", "--namespace", ws.namespace)
		Expect(session).To(gexec.Exit(0))
		Expect(string(session.Out.Contents())).To(And(ContainSubstring("\n  namespace: "+ws.namespace+"\n"), Not(ContainSubstring(first))))
	})

	It("keeps the permissions that were granted to another user", func(ctx SpecContext) {
		ws.kubeconfig = controlPlane.Kubeconfig("admin")
		for _, name := range []string{"jane@example.com", `https://issuer.example.com/a%2Fb#"joe": x`} {
			ws.applyPermissions(ctx, ws.printPermissions("--as", name), name)
		}
		Expect(ws.isAllowed(ctx, "jane@example.com", "create", "pods", "portforward")).To(BeTrue())
		Expect(ws.isAllowed(ctx, "jane@example.com", "list", "nodes", "")).To(BeTrue())
	})
})
