package preflight

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/kube"
)

func TestPreflight(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "cpi/preflight")
}

// content returns the content of a file of the repository.
func content(path string) string {
	GinkgoHelper()
	raw, err := os.ReadFile("../../" + path)
	Expect(err).NotTo(HaveOccurred())
	return string(raw)
}

// rulesInFile returns the rules of the Roles and ClusterRoles in the file, except the one for the limits, which no check requires.
func rulesInFile(path string) (rules []rule) {
	GinkgoHelper()
	for document := range strings.SplitSeq(content(path), "\n---\n") {
		var role rbacv1.ClusterRole
		Expect(yaml.Unmarshal([]byte(document), &role)).To(Succeed())
		for _, policyRule := range role.Rules {
			if slices.Equal(policyRule.ResourceNames, []string{limitsName}) {
				continue
			}
			Expect(policyRule.ResourceNames).To(BeEmpty())
			for _, resource := range policyRule.Resources {
				verbs := strings.Join(policyRule.Verbs, " ")
				rules = append(rules, rule{policyRule.APIGroups[0], resource, verbs, role.Kind == "ClusterRole"})
			}
		}
	}
	return rules
}

var _ = Describe("The permissions that are checked", func() {
	It("match the files, each in one of the checks", func() {
		Expect(slices.Concat(callPermissions.rules, snapshotPermissions.rules, eventPermissions.rules)).To(ConsistOf(rulesInFile(callPermissionsFile)))
	})
})

var _ = Describe("docs/reference/preflight.md", func() {
	It("has a row for each check, in the order of the report and with its kind", func() {
		var expected [][]string
		for _, check := range Checks() {
			expected = append(expected, []string{check.Name, string(check.Kind)})
		}
		for _, check := range DeepChecks() {
			expected = append(expected, []string{check.Name, string(check.Kind)})
		}
		var rows [][]string
		for _, row := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| (required|advised) \\| .+ \\|$").FindAllStringSubmatch(content("docs/reference/preflight.md"), -1) {
			rows = append(rows, row[1:])
		}
		Expect(rows).To(Equal(expected))
	})

	It("has the supported versions of Kubernetes", func() {
		Expect(content("docs/reference/preflight.md")).To(MatchRegexp(`Kubernetes 1\.%d to 1\.%d`, oldestMinor, newestMinor))
	})
})

var _ = DescribeTable("A request of a check that failed", func(kind error, message string, verdict Verdict, remedy string) {
	state := &clusterState{client: &kube.Client{Namespace: "bosh"}}
	finding := state.rejectionFinding(&kube.Error{Kind: kind, Err: errors.New(message)})
	Expect(finding.verdict).To(Equal(verdict))
	Expect(finding.remedy).To(ContainSubstring(remedy))
},
	Entry("because the namespace is missing", kube.ErrNotFound, `namespaces "bosh" not found`, Fails, "kubectl create namespace bosh"),
	Entry("because the Service of a webhook is missing", kube.ErrWebhook, `failed calling webhook "a": service "b" not found`, Fails, "repair the admission webhook"),
	Entry("because no ResourceQuota admits the PriorityClass", kube.ErrDenied,
		"insufficient quota to match these scopes: [{PriorityClass In [system-node-critical system-cluster-critical]}]", Fails, "apply manifests/rbac.yaml with the ResourceQuota bosh-attachments"),
	Entry("because of GKE Autopilot", kube.ErrDenied, "admission webhook \"warden-validating.common-webhooks.networking.gke.io\" denied the request: "+
		"GKE Warden rejected the request", Fails, "use a GKE Standard cluster"),
	Entry("because of OpenShift", kube.ErrDenied, "unable to validate against any security context constraint", Fails, "oc adm policy add-scc-to-user privileged"),
	Entry("because of a LimitRange for PVCs", kube.ErrDenied, "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 64Mi", Fails,
		"change the namespace's LimitRange so that it admits disks"),
	Entry("because it timed out, without a result", kube.ErrTimeout, "context deadline exceeded", Unknown, "retry the check"),
)

var _ = Describe("The supported versions of Kubernetes", func() {
	// toolFor returns the output of scripts/build-tools for Kubernetes 1.minor: the name of the tool with its control plane.
	toolFor := func(minor int) (string, error) {
		output, err := exec.Command("../../scripts/build-tools", "--kubernetes", fmt.Sprintf("1.%d", minor)).CombinedOutput()
		return strings.TrimSpace(string(output)), err
	}

	It("have a tool for tests", func() {
		for minor := oldestMinor; minor <= newestMinor; minor++ {
			Expect(toolFor(minor)).To(BeElementOf("kubernetes", fmt.Sprintf("kubernetes-1.%d", minor)))
		}
		Expect(content(".github/workflows/test.yml")).To(ContainSubstring("kubernetes: '1.%d'", oldestMinor))
	})

	It("are listed in the error for another version", func() {
		output, err := toolFor(oldestMinor - 1)
		Expect(err).To(HaveOccurred())
		Expect(output).To(HavePrefix("build-tools: Kubernetes 1.%d is not in scripts/tools; available versions:", oldestMinor-1))
		Expect(output).To(ContainSubstring(" 1.%d", oldestMinor))
	})
})
