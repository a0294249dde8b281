package attacks

import (
	"os"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("docs/development/attacks.md", func() {
	const page = root + "/docs/development/attacks.md"

	DescribeTable("contains the generated table",
		func(name string, table func() string) {
			tablePattern := regexp.MustCompile(`(?s)(<!-- ` + name + `: .*? -->\n).*?(<!-- end -->)`)
			raw, err := os.ReadFile(page)
			Expect(err).NotTo(HaveOccurred())
			Expect(tablePattern.Match(raw)).To(BeTrue())
			expected := tablePattern.ReplaceAllStringFunc(string(raw), func(match string) string {
				parts := tablePattern.FindStringSubmatch(match)
				return parts[1] + table() + parts[2]
			})
			if os.Getenv("UPDATE_GOLDEN") != "" {
				Expect(os.WriteFile(page, []byte(expected), 0o644)).To(Succeed())
				raw = []byte(expected)
			}
			Expect(expected).To(Equal(string(raw)), "to update it, run: UPDATE_GOLDEN=1 scripts/test ./test/attacks")
		},
		Entry(nil, "possible", PossibleTable),
		Entry(nil, "bounded", LimitableTable),
		Entry(nil, "escapes", EscapesTable),
		Entry(nil, "rejected", RejectedTable),
	)
})

var _ = Describe("The attacks", func() {
	It("have unique names, and are at least 100", func() {
		var names []string
		for _, attack := range All() {
			names = append(names, attack.Name)
		}
		Expect(len(names)).To(BeNumerically(">=", 100))
		slices.Sort(names)
		Expect(slices.Compact(slices.Clone(names))).To(Equal(names))
	})

	// https://kubernetes.io/docs/concepts/security/pod-security-standards/, as of Kubernetes 1.36, and
	// https://kubernetes.io/docs/concepts/security/rbac-good-practices/#kubernetes-rbac-privilege-escalation-risks.
	DescribeTable("cover every entry of the list", func(list string, entries ...string) {
		var sources []string
		for _, attack := range All() {
			sources = append(sources, attack.Source)
		}
		for _, entry := range entries {
			Expect(sources).To(ContainElement(list + ": " + entry))
		}
	},
		Entry(nil, "PSS Baseline", "HostProcess", "Host Namespaces", "Privileged Containers", "Capabilities", "HostPath Volumes", "Host Ports",
			"Host Probes / Lifecycle Hooks", "AppArmor", "SELinux", "/proc Mount Type", "Seccomp", "Sysctls"),
		Entry(nil, "PSS Restricted", "Volume Types", "Privilege Escalation", "Running as Non-root", "Running as Non-root user", "Seccomp", "Capabilities"),
		Entry(nil, "RBAC", "listing secrets", "workload creation", "persistent volume creation", "nodes/proxy", "escalate verb", "bind verb",
			"impersonate verb", "CSRs and certificate issuing", "token request", "control admission webhooks", "namespace modification"),
		Entry(nil, "NSA/CISA", "Immutable container file systems", "Building secure container images", "Protecting Pod service account tokens",
			"Network policies", "Resource policies", "Control plane hardening", "Worker node segmentation",
			"Authentication and authorization", "Audit logging and threat detection"),
	)

	It("have table cells of at most 120 characters", func() {
		for _, table := range []string{PossibleTable(), LimitableTable(), EscapesTable()} {
			for line := range strings.Lines(table) {
				row := strings.TrimSuffix(strings.TrimPrefix(line, "| "), " |\n")
				for cell := range strings.SplitSeq(row, " | ") {
					Expect(len(cell)).To(BeNumerically("<=", 120), cell)
				}
			}
		}
	})
})
