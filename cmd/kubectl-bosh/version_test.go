package main_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("kubectl bosh version", func() {
	It("prints the version that scripts/build-kubectl-bosh sets", func(ctx context.Context) {
		script, err := os.ReadFile("../../scripts/build-kubectl-bosh")
		Expect(err).NotTo(HaveOccurred())
		flags := regexp.MustCompile(`-ldflags "([^"]*)\$version `).FindStringSubmatch(string(script))
		Expect(flags).To(HaveLen(2))
		program := filepath.Join(GinkgoT().TempDir(), "kubectl-bosh")
		out, err := exec.CommandContext(ctx, "go", "build", "-ldflags", flags[1]+"v1.2.3", "-o", program, ".").CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		for _, argument := range []string{"version", "--version"} {
			output, err := exec.CommandContext(ctx, program, argument).Output()
			Expect(err).NotTo(HaveOccurred())
			Expect(string(output)).To(Equal("kubectl bosh version v1.2.3\n"))
		}
	})

	It("is in the URLs of pages to which a published plugin refers", func(ctx context.Context) {
		program := filepath.Join(GinkgoT().TempDir(), "kubectl-bosh")
		out, err := exec.CommandContext(ctx, "go", "build", "-ldflags",
			"-X main.version=v1.2.3 -X 'main.publishedRelease=https://home.test/name/releases/download/v1.2.3/cpi.tgz sha256:1'", "-o", program, ".").CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		output, _ := exec.CommandContext(ctx, program, "check", "--kubeconfig", controlPlane.Kubeconfig("admin"), "--namespace", "default").CombinedOutput()
		Expect(string(output)).To(And(ContainSubstring("https://home.test/name/blob/v1.2.3/docs/"), Not(MatchRegexp(`[^/](docs|manifests)/`))))
	})
})

var _ = Describe("kubectl's flags", func() {
	output := func(ctx context.Context, arguments ...string) string {
		GinkgoHelper()
		out, err := exec.CommandContext(ctx, program, arguments...).Output()
		Expect(err).NotTo(HaveOccurred())
		return string(out)
	}

	It("are in the help of each command only if they are common", func(ctx context.Context) {
		Expect(output(ctx, "ps", "--help")).To(And(ContainSubstring("--context"), ContainSubstring("--namespace"), Not(ContainSubstring("--as-uid"))))
	})

	It("are all listed by kubectl bosh options", func(ctx context.Context) {
		Expect(output(ctx, "options")).To(And(ContainSubstring("--context"), ContainSubstring("--as-uid"), ContainSubstring("--token")))
	})
})
