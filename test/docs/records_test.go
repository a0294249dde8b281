package docs

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/chaos"
)

var _ = DescribeTable("reliability.md has the counts of the recorded run, which passed, of",
	func(name string, phrases func(counts map[string]chaos.Total) []string) {
		content, err := os.ReadFile(filepath.Join(root, "docs/bench", name))
		Expect(err).NotTo(HaveOccurred())
		var record chaos.Record
		Expect(json.Unmarshal(content, &record)).To(Succeed())
		Expect(record.Failed).To(BeZero())
		for kind, total := range record.Cases {
			Expect(total.Passed).To(Equal(total.Tried), kind)
		}

		content, err = os.ReadFile(filepath.Join(root, "docs/explanation/reliability.md"))
		Expect(err).NotTo(HaveOccurred())
		text := strings.Join(strings.Fields(string(content)), " ")
		for _, phrase := range phrases(record.Cases) {
			Expect(text).To(ContainSubstring(phrase))
		}
	},
	Entry("faults at every request, outages and concurrent calls", "requests.json", func(counts map[string]chaos.Total) []string {
		cases, outages := counts["test cases"], counts["calls during outages"]
		return []string{
			fmt.Sprintf("in %d scenarios", cases.Groups), fmt.Sprintf("all %s test cases passed", thousands(cases.Tried)),
			fmt.Sprintf("%d of %[1]d calls succeeded", outages.Tried/outages.Groups),
			fmt.Sprintf("%s random calls", thousands(counts["random calls"].Tried)),
		}
	}),
	Entry("interleavings", "interleavings.json", func(counts map[string]chaos.Total) []string {
		interleavings := counts["interleavings"]
		return []string{fmt.Sprintf("all %s interleavings of %d pairs passed", thousands(interleavings.Tried), interleavings.Groups)}
	}),
	Entry("the chaos test", "chaos.json", func(counts map[string]chaos.Total) []string {
		return []string{fmt.Sprintf("%s calls, %d of them killed, and %d faults",
			thousands(counts["calls"].Tried), counts["killed calls"].Tried, counts["faults"].Tried)}
	}),
)

// thousands returns the number with separators, as in 1,234.
func thousands(number int) string {
	if number < 1000 {
		return fmt.Sprint(number)
	}
	return fmt.Sprintf("%s,%03d", thousands(number/1000), number%1000)
}
