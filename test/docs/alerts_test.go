package docs

import (
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/cpi/manifest"
)

const alertRulesFile = "manifests/prometheus-rules.yaml"

// alertRule is an alerting or recording rule of Prometheus: https://prometheus.io/docs/prometheus/latest/configuration/alerting_rules/.
type alertRule struct {
	Record, Alert, Expr string
	Labels, Annotations map[string]string
}

var (
	labelPattern            = regexp.MustCompile(`\blabel_\w+`) // the name of an object's label in kube-state-metrics
	allowlistPattern        = regexp.MustCompile(`\w+=\[([^\]]+)\]`)
	invalidCharacterPattern = regexp.MustCompile(`[^A-Za-z0-9_]`)
)

var _ = Describe("Alert rules for VMs and disks", func() {
	var rules []alertRule
	// labels maps the names of labels in kube-state-metrics to the labels that it is configured to export.
	labels := map[string]string{}

	BeforeEach(func() {
		var file struct {
			Spec struct{ Groups []struct{ Rules []alertRule } }
		}
		Expect(yaml.UnmarshalStrict([]byte(readFile(alertRulesFile)), &map[string]any{})).To(Succeed())
		Expect(yaml.Unmarshal([]byte(readFile(alertRulesFile)), &file)).To(Succeed())
		rules = nil
		for _, group := range file.Spec.Groups {
			rules = append(rules, group.Rules...)
		}
		Expect(len(rules)).To(BeNumerically(">", 5))
		for _, allowlist := range allowlistPattern.FindAllStringSubmatch(readFile(alertRulesFile), -1) {
			for label := range strings.SplitSeq(allowlist[1], ",") {
				labels["label_"+invalidCharacterPattern.ReplaceAllString(label, "_")] = label
			}
		}
	})

	It("have a severity, a summary and a description", func() {
		for _, rule := range rules {
			Expect(rule.Expr).NotTo(BeEmpty())
			if rule.Record == "" {
				Expect(rule.Alert).To(HavePrefix("Bosh"))
				Expect(rule.Labels["severity"]).To(BeElementOf("warning", "critical"), rule.Alert)
				Expect(rule.Annotations).To(And(HaveKey("summary"), HaveKey("description")), rule.Alert)
			}
		}
	})

	It("use exactly the labels that kube-state-metrics is configured to export", func() {
		used := map[string]bool{}
		for _, rule := range rules {
			for _, name := range labelPattern.FindAllString(rule.Expr, -1) {
				Expect(labels).To(HaveKey(name))
				used[name] = true
			}
		}
		for name := range labels {
			Expect(used).To(HaveKey(name))
		}
	})

	It("exclude the PodDisruptionBudgets of attachment Pods, which are never met", func() {
		excluded := regexp.MustCompile(`poddisruptionbudget!~"([^"]+)"`).FindStringSubmatch(readFile(alertRulesFile))
		Expect(excluded).To(HaveLen(2))
		Expect(manifest.AttachmentPDBName("db")).To(MatchRegexp("^(" + excluded[1] + ")$"))
		Expect(manifest.PDBName("db-disks")).NotTo(MatchRegexp("^(" + excluded[1] + ")$"))
	})

	It("use only labels that VMs and disks have", func() {
		known := []string{manifest.LabelManagedBy, manifest.LabelRole, manifest.LabelVM, manifest.LabelDisk}
		for _, metadataKey := range []string{"deployment", "job", "index"} { // set by the director
			key, ok := manifest.LabelKey(metadataKey)
			Expect(ok).To(BeTrue())
			known = append(known, key)
		}
		for _, label := range labels {
			Expect(slices.Contains(known, label)).To(BeTrue(), label)
		}
	})
})
