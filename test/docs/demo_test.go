package docs

import (
	"os/exec"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("The demo", func() {
	It("lists all missing requirements before it builds anything", func(ctx SpecContext) {
		command := exec.CommandContext(ctx, "scripts/demo")
		command.Dir = root
		command.Env = []string{
			"PATH=/usr/bin:/bin", "KUBECONFIG=/none", "DEMO_STEMCELL=/no/stemcell.tgz",
			"DEMO_DIR=" + GinkgoT().TempDir(), "BOSH_KUBERNETES_CPI_CACHE=" + GinkgoT().TempDir(),
		}
		out, err := command.CombinedOutput()
		Expect(err).To(HaveOccurred())
		Expect(string(out)).To(And(HavePrefix("Missing requirements of the demo:\n"), ContainSubstring("the file /no/stemcell.tgz (DEMO_STEMCELL)")))
		Expect(string(out)).NotTo(ContainSubstring("building"))
	})
})
