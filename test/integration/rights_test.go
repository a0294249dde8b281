package integration

import (
	"context"
	"os"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/test/embedded"
)

var documentedRights = []string{"../../docs/rbac.yaml", "../../docs/rbac-networks.yaml"}

// serviceAccount gives the namespace the documented service account, with exactly the documented
// rights, and answers a token for it: every test runs with it, so that a missing right fails tests.
func serviceAccount(ctx context.Context, namespace string) string {
	GinkgoHelper()
	raw := rightsDocuments()
	// Each world has its own service account, and so its own binding in the cluster.
	content := strings.ReplaceAll(raw, "namespace: bosh\n", "namespace: "+namespace+"\n")
	content = strings.ReplaceAll(content, "kind: ClusterRoleBinding\nmetadata:\n  name: bosh-cpi", "kind: ClusterRoleBinding\nmetadata:\n  name: bosh-cpi-"+namespace)
	Expect(content).To(ContainSubstring("name: bosh-cpi-" + namespace))
	_, err := embedded.RunInput(ctx, content, "kubectl", "--kubeconfig", plane.Kubeconfig("admin"), "apply", "--namespace", namespace, "-f", "-")
	Expect(err).NotTo(HaveOccurred())
	token, err := cluster.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, "bosh-cpi", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return token.Status.Token
}

var _ = ReportAfterSuite("every documented right is used", func(report Report) {
	if !report.SuiteSucceeded || report.SuiteConfig.FocusStrings != nil {
		return // some calls were not made
	}
	used := proxy.Rights()
	for _, right := range documented() {
		// A wait lists first, and watches only when that does not settle it.
		listed := strings.Replace(right, "watch ", "list ", 1)
		Expect(slices.Contains(used, right) || slices.Contains(used, listed)).To(BeTrue(), "%v document the right to %s, which no call needs", documentedRights, right)
	}
})

func rightsDocuments() string {
	GinkgoHelper()
	var all []string
	for _, path := range documentedRights {
		raw, err := os.ReadFile(path)
		Expect(err).NotTo(HaveOccurred())
		all = append(all, string(raw))
	}
	return strings.Join(all, "\n---\n")
}

// documented answers the Roles' rights as "verb resource".
func documented() []string {
	GinkgoHelper()
	var rights []string
	for _, document := range strings.Split(rightsDocuments(), "\n---\n") {
		var role rbacv1.Role
		Expect(yaml.Unmarshal([]byte(document), &role)).To(Succeed())
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					rights = append(rights, verb+" "+resource)
				}
			}
		}
	}
	Expect(rights).NotTo(BeEmpty())
	return rights
}
