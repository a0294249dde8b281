package preflight

import (
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
)

func TestPreflight(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "cpi/preflight")
}

func content(path string) string {
	GinkgoHelper()
	raw, err := os.ReadFile("../../" + path)
	Expect(err).NotTo(HaveOccurred())
	return string(raw)
}

// given are the rules that the file's Roles and ClusterRoles give.
func given(path string) (rules []rule) {
	GinkgoHelper()
	for document := range strings.SplitSeq(content(path), "\n---\n") {
		var role rbacv1.ClusterRole
		Expect(yaml.Unmarshal([]byte(document), &role)).To(Succeed())
		for _, each := range role.Rules {
			for _, resource := range each.Resources {
				rules = append(rules, rule{each.APIGroups[0], resource, strings.Join(each.Verbs, " "), role.Kind == "ClusterRole"})
			}
		}
	}
	return rules
}

var _ = Describe("The rights that are asked for", func() {
	It("are those of the files, each in one of the checks", func() {
		Expect(slices.Concat(calls.rules, snapshots.rules, events.rules)).To(ConsistOf(given(rightsOfCalls)))
		Expect(networks.rules).To(ConsistOf(given(rightsOfNetworks)))
		Expect(prefetch.rules).To(ConsistOf(given(rightsOfPrefetch)))
	})
})

var _ = Describe("The page about the checks", func() {
	It("has a row for each of them, in the order of the report and of the same kind", func() {
		var expected [][]string
		for _, check := range Checks() {
			expected = append(expected, []string{check.Name, string(check.Kind)})
		}
		for _, check := range DeepChecks() {
			expected = append(expected, []string{check.Name, string(check.Kind)})
		}
		var rows [][]string
		for _, row := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| (required|advised) \\| .+ \\| .+ \\|$").FindAllStringSubmatch(content("docs/preflight.md"), -1) {
			rows = append(rows, row[1:])
		}
		Expect(rows).To(Equal(expected))
	})

	It("names the versions of Kubernetes that are looked for", func() {
		Expect(content("docs/preflight.md")).To(MatchRegexp(`Kubernetes 1\.%d to 1\.%d`, oldest, newest))
	})
})

var _ = Describe("The versions of Kubernetes that the CPI is made for", func() {
	// named is what scripts/build-tools says when it is asked for the tool of Kubernetes 1.N.
	named := func(minor int) (string, error) {
		said, err := exec.Command("../../scripts/build-tools", "--kubernetes", fmt.Sprintf("1.%d", minor)).CombinedOutput()
		return strings.TrimSpace(string(said)), err
	}

	It("can each be tested with", func() {
		for minor := oldest; minor <= newest; minor++ {
			Expect(named(minor)).To(BeElementOf("kubernetes", fmt.Sprintf("kubernetes-1.%d", minor)))
		}
		Expect(content(".github/workflows/test.yml")).To(ContainSubstring("kubernetes: '1.%d'", oldest))
	})

	It("are all that can be: an error names them", func() {
		said, err := named(oldest - 1)
		Expect(err).To(HaveOccurred())
		Expect(said).To(HavePrefix("build-tools: Kubernetes 1.%d is not in scripts/tools; these are:", oldest-1))
		Expect(said).To(ContainSubstring(" 1.%d", oldest))
	})
})
