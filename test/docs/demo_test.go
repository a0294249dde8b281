package docs

import (
	"os"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("The demo", func() {
	var directory string

	// missingRequirements runs the demo without Go, so that it stops after it listed the missing requirements.
	missingRequirements := func(ctx SpecContext, arguments []string, env ...string) string {
		command := exec.CommandContext(ctx, "scripts/demo", arguments...)
		command.Dir = root
		command.Env = append([]string{
			"PATH=/usr/bin:/bin", "DEMO_DIR=" + GinkgoT().TempDir(), "BOSH_KUBERNETES_CPI_CACHE=" + GinkgoT().TempDir(),
			"BOSH_KUBERNETES_CPI_CLUSTER=" + directory,
		}, env...)
		out, err := command.CombinedOutput()
		Expect(err).To(HaveOccurred())
		Expect(string(out)).To(And(HavePrefix("Missing requirements of the demo:\n"), ContainSubstring("Go 1.21 or later")))
		return string(out)
	}

	BeforeEach(func() { directory = GinkgoT().TempDir() })

	It("lists all missing requirements before it builds anything", func(ctx SpecContext) {
		out := missingRequirements(ctx, nil, "KUBECONFIG=/none", "DEMO_STEMCELL=/no/stemcell.tgz")
		Expect(out).To(ContainSubstring("the file /no/stemcell.tgz (DEMO_STEMCELL)"))
		Expect(out).NotTo(ContainSubstring("building"))
	})

	It("requires a registry on a cluster of the user", func(ctx SpecContext) {
		Expect(missingRequirements(ctx, nil, "KUBECONFIG=/none")).To(ContainSubstring("DEMO_REGISTRY"))
	})

	It("recognizes the kubeconfig of the embedded cluster", func(ctx SpecContext) {
		out := missingRequirements(ctx, nil, "KUBECONFIG="+filepath.Join(directory, "kubeconfig"))
		Expect(out).NotTo(ContainSubstring("DEMO_REGISTRY"))
	})

	It("deletes the VM with the releases that created it, even if the source code has changed", func(ctx SpecContext) {
		state := GinkgoT().TempDir()
		release := filepath.Join(state, "cpi-release-1.tgz")
		Expect(os.WriteFile(release, nil, 0o600)).To(Succeed())
		command := exec.CommandContext(ctx, "scripts/demo", "delete-env")
		command.Dir, command.Env = root, append(os.Environ(), "DEMO_DIR="+state, "KUBECONFIG=/none")
		out, err := command.CombinedOutput()
		Expect(err).To(HaveOccurred(), "there is no VM")
		Expect(string(out)).To(ContainSubstring("kubectl bosh down"))
		Expect(release).To(BeAnExistingFile())
	})

	It("requires neither a registry nor a stemcell to delete the VM", func(ctx SpecContext) {
		out := missingRequirements(ctx, []string{"delete-env"}, "KUBECONFIG=/none", "DEMO_STEMCELL=/no/stemcell.tgz")
		Expect(out).NotTo(ContainSubstring("DEMO_"))
	})
})
