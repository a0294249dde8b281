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

var _ = Describe("The chaos test in reliability.md", func() {
	var record chaos.Record
	BeforeEach(func() {
		content, err := os.ReadFile(filepath.Join(root, "docs/bench/chaos.json"))
		Expect(err).NotTo(HaveOccurred())
		Expect(json.Unmarshal(content, &record)).To(Succeed())
	})

	It("passed", func() {
		Expect(record.Failed).To(BeZero())
	})

	It("has the counts of the recorded run", func() {
		content, err := os.ReadFile(filepath.Join(root, "docs/explanation/reliability.md"))
		Expect(err).NotTo(HaveOccurred())
		text := strings.Join(strings.Fields(string(content)), " ")
		Expect(text).To(ContainSubstring(fmt.Sprintf("%s calls, %d of them killed, and %d faults",
			thousands(record.Cases["calls"].Tried), record.Cases["killed calls"].Tried, record.Cases["faults"].Tried)))
	})
})

// thousands returns the number with separators, as in 1,234.
func thousands(number int) string {
	if number < 1000 {
		return fmt.Sprint(number)
	}
	return fmt.Sprintf("%s,%03d", thousands(number/1000), number%1000)
}
