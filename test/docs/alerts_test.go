package docs

import (
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/kube/manifest"
)

const alertRules = "manifests/prometheus-rules.yaml"

// An alert or a recorded series, as Prometheus has it: https://prometheus.io/docs/prometheus/latest/configuration/alerting_rules/.
type alert struct {
	Record, Alert, Expr string
	Labels, Annotations map[string]string
}

var (
	labelPattern      = regexp.MustCompile(`\blabel_\w+`) // as kube-state-metrics names an object's label
	allowlistPattern  = regexp.MustCompile(`\w+=\[([^\]]+)\]`)
	invalidLabelChars = regexp.MustCompile(`[^A-Za-z0-9_]`)
)

var _ = Describe("Alerts about machines and disks", func() {
	var rules []alert
	// By the names that kube-state-metrics has for them, the labels that the file asks it to tell.
	labels := map[string]string{}

	BeforeEach(func() {
		var file struct {
			Spec struct{ Groups []struct{ Rules []alert } }
		}
		Expect(yaml.UnmarshalStrict([]byte(readFile(alertRules)), &map[string]any{})).To(Succeed())
		Expect(yaml.Unmarshal([]byte(readFile(alertRules)), &file)).To(Succeed())
		rules = nil
		for _, group := range file.Spec.Groups {
			rules = append(rules, group.Rules...)
		}
		Expect(len(rules)).To(BeNumerically(">", 5))
		for _, kind := range allowlistPattern.FindAllStringSubmatch(readFile(alertRules), -1) {
			for label := range strings.SplitSeq(kind[1], ",") {
				labels["label_"+invalidLabelChars.ReplaceAllString(label, "_")] = label
			}
		}
	})

	It("say how bad it is, what it is and what to do", func() {
		for _, rule := range rules {
			Expect(rule.Expr).NotTo(BeEmpty())
			if rule.Record == "" {
				Expect(rule.Alert).To(HavePrefix("Bosh"))
				Expect(rule.Labels["severity"]).To(BeElementOf("warning", "critical"), rule.Alert)
				Expect(rule.Annotations).To(And(HaveKey("summary"), HaveKey("description")), rule.Alert)
			}
		}
	})

	It("go by labels that kube-state-metrics is asked to tell, and asks for no others", func() {
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

	It("go by labels that machines and disks have", func() {
		ours := []string{manifest.LabelManagedBy, manifest.LabelRole, manifest.LabelVM, manifest.LabelDisk}
		for _, named := range []string{"deployment", "job", "index"} { // by the director, which names its VMs
			key, ok := manifest.LabelKey(named)
			Expect(ok).To(BeTrue())
			ours = append(ours, key)
		}
		for _, label := range labels {
			Expect(slices.Contains(ours, label)).To(BeTrue(), label)
		}
	})
})
