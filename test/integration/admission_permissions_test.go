package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// rbacFiles grant the permissions of all specs. checkRBACFile grants additional permissions for some preflight checks.
var (
	rbacFiles     = []string{"../../manifests/rbac.yaml"}
	checkRBACFile = "../../manifests/rbac-check.yaml"
)

// createServiceAccount creates the documented service account in the namespace, with exactly the documented permissions, and returns a
// token. Specs use this token, so that they fail without a required permission.
func createServiceAccount(ctx context.Context, namespace string) string {
	GinkgoHelper()
	applyRBAC(ctx, namespace, readRBACFiles(rbacFiles...))
	// RBAC objects and the ResourceQuota for attachment Pods take effect with a delay.
	waitForQuota(ctx, namespace, attachmentQuota)
	waitForPermissions(ctx, namespace, authorizationv1.ResourceAttributes{Verb: "delete", Resource: "pods", Namespace: namespace},
		authorizationv1.ResourceAttributes{Verb: "list", Resource: "nodes"})
	token, err := cluster.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, "bosh-cpi", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return token.Status.Token
}

// waitForPermissions waits until the service account of the namespace has these permissions.
func waitForPermissions(ctx context.Context, namespace string, permissions ...authorizationv1.ResourceAttributes) {
	GinkgoHelper()
	for _, permission := range permissions {
		Eventually(func() (bool, error) { return serviceAccountMay(ctx, namespace, permission) }).WithContext(ctx).Should(BeTrue(), "%v", permission)
	}
}

// serviceAccountMay reports whether the service account of the namespace has this permission.
func serviceAccountMay(ctx context.Context, namespace string, permission authorizationv1.ResourceAttributes) (bool, error) {
	return userMay(ctx, "system:serviceaccount:"+namespace+":bosh-cpi", permission)
}

// userMay reports whether the user has this permission.
func userMay(ctx context.Context, user string, permission authorizationv1.ResourceAttributes) (bool, error) {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &permission}}
	result, err := cluster.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	return err == nil && result.Status.Allowed, err
}

// namespacePattern matches the namespace in manifests/rbac*.yaml, like the command at the top of manifests/rbac.yaml.
var namespacePattern = regexp.MustCompile(`(?m)([- ])bosh$`)

// applyRBAC creates the RBAC objects in these YAML documents, for the namespace.
func applyRBAC(ctx context.Context, namespace, raw string) {
	GinkgoHelper()
	content := namespacePattern.ReplaceAllString(raw, "${1}"+namespace)
	for document := range strings.SplitSeq(content, "\n---\n") {
		var object unstructured.Unstructured
		Expect(yaml.Unmarshal([]byte(document), &object.Object)).To(Succeed())
		kind := object.GroupVersionKind()
		client := dynamicClient.Resource(kind.GroupVersion().WithResource(strings.ToLower(kind.Kind) + "s"))
		var err error
		if strings.HasPrefix(kind.Kind, "Cluster") {
			_, err = client.Create(ctx, &object, metav1.CreateOptions{})
		} else {
			_, err = client.Namespace(namespace).Create(ctx, &object, metav1.CreateOptions{})
		}
		Expect(err).NotTo(HaveOccurred())
	}
}

var _ = Describe("The permissions of a second director in the cluster", func() {
	// command returns the command at the top of manifests/rbac.yaml for this file and this namespace, without the verb of kubectl.
	command := func(file, namespace string) string {
		GinkgoHelper()
		found := regexp.MustCompile(`(?m)^#   (sed -E .* manifests/rbac\.yaml) \| kubectl apply --namespace cf -f -$`).FindStringSubmatch(readRepoFile("manifests/rbac.yaml"))
		Expect(found).NotTo(BeEmpty())
		return strings.ReplaceAll(strings.ReplaceAll(found[1], "manifests/rbac.yaml", file), "cf", namespace) + " | kubectl --namespace " + namespace + " "
	}
	run := func(ctx context.Context, command string) {
		GinkgoHelper()
		shell := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", command)
		shell.Dir, shell.Env = "../..", append(os.Environ(), "KUBECONFIG="+plane.Kubeconfig("admin"))
		out, err := shell.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
	}

	DescribeTable("that an administrator applies and deletes do not change the permissions of the first one:", func(
		ctx context.Context, file string, permission authorizationv1.ResourceAttributes,
	) {
		var namespaces []string
		for _, name := range []string{"first", "second"} {
			testEnvCount++
			name = fmt.Sprintf("%s-%d-%d", name, GinkgoParallelProcess(), testEnvCount)
			_, err := cluster.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			namespaces = append(namespaces, name)
			run(ctx, command(file, name)+"apply -f -")
		}
		for _, namespace := range namespaces {
			waitForPermissions(ctx, namespace, permission)
		}
		run(ctx, command(file, namespaces[1])+"delete -f -")
		Eventually(func() (bool, error) { return serviceAccountMay(ctx, namespaces[1], permission) }).WithContext(ctx).Should(BeFalse())
		Expect(serviceAccountMay(ctx, namespaces[0], permission)).To(BeTrue())
		run(ctx, command(file, namespaces[0])+"delete -f -")
	},
		Entry("rbac.yaml", "manifests/rbac.yaml", authorizationv1.ResourceAttributes{Verb: "list", Resource: "nodes"}),
		Entry("rbac-check.yaml", "manifests/rbac-check.yaml", authorizationv1.ResourceAttributes{Verb: "list", Group: "storage.k8s.io", Resource: "volumeattachments"}),
	)
})

const permissionsReportEntry = "permissions used"

// reportPermissions adds the permissions used by the specs of this process to the report.
func reportPermissions() {
	AddReportEntry(permissionsReportEntry, strings.Join(proxy.Permissions(), "\n"), ReportEntryVisibilityNever)
}

var _ = ReportAfterSuite("every documented permission is used", func(report Report) {
	if !report.SuiteSucceeded || report.SuiteConfig.FocusStrings != nil || report.SuiteConfig.LabelFilter != "" {
		return // some specs did not run
	}
	var used []string
	for _, spec := range report.SpecReports {
		for _, entry := range spec.ReportEntries {
			if entry.Name == permissionsReportEntry {
				used = append(used, strings.Split(entry.StringRepresentation(), "\n")...)
			}
		}
	}
	for _, permission := range listDocumentedPermissions() {
		// A wait lists first, and watches only if the condition is not met yet.
		listed := strings.Replace(permission, "watch ", "list ", 1)
		Expect(slices.Contains(used, permission) || slices.Contains(used, listed)).To(BeTrue(), "%v and %s have permission to %s, which no test uses", rbacFiles, checkRBACFile, permission)
	}
})

// readRBACFiles returns the content of the files as one YAML stream.
func readRBACFiles(paths ...string) string {
	GinkgoHelper()
	var documents []string
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		Expect(err).NotTo(HaveOccurred())
		documents = append(documents, string(raw))
	}
	return strings.Join(documents, "\n---\n")
}

// listDocumentedPermissions returns the permissions in rbacFiles and checkRBACFile, as "verb resource".
func listDocumentedPermissions() []string {
	GinkgoHelper()
	var permissions []string
	for document := range strings.SplitSeq(readRBACFiles(append(rbacFiles, checkRBACFile)...), "\n---\n") {
		var role rbacv1.Role
		Expect(yaml.Unmarshal([]byte(document), &role)).To(Succeed())
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					permissions = append(permissions, verb+" "+resource)
				}
			}
		}
	}
	Expect(permissions).NotTo(BeEmpty())
	return permissions
}
