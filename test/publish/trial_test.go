package publish

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("The table of the nightly trial", func() {
	It("has a column for each cluster, and says what was not tried", func() {
		c := newCheckout()
		c.write("new.tsv", "cluster\tkind, Kubernetes 1.36.3\nwith\tbosh-deployment v1\ncheck\tpassed in 40 s\nup\tfailed\nup\tpassed in 900 s\n")
		c.write("old.tsv", "cluster\tkind, Kubernetes 1.33.13\nwith\tbosh-deployment v1\ncheck\tfailed\n")
		c.mustRun("scripts/trial", "--table", "new.tsv", "old.tsv")

		page, err := os.ReadFile(filepath.Join(c.dir, "docs", "reference", "compatibility.md"))
		Expect(err).NotTo(HaveOccurred())
		Expect(string(page)).To(And(
			ContainSubstring("| step | kind, Kubernetes 1.36.3 | kind, Kubernetes 1.33.13 |\n|---|---|---|\n"),
			ContainSubstring("| preflight checks | passed in 40 s | failed |\n"),
			ContainSubstring("| director | passed in 900 s | not yet tried |\n"),
			ContainSubstring("| deletion | not yet tried | not yet tried |\n\nTried with bosh-deployment v1.\n<!-- end -->\n"),
			ContainSubstring("\n## Limits\n"),
		))
	})
})
