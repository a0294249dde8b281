//go:build e2e

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("The nightly trial", Label("remote-access", "extended"), func() {
	// runTrial runs these steps, and returns the recorded results.
	runTrial := func(ctx context.Context, c *remoteClient, upFlags string, steps ...string) (results string, err error) {
		GinkgoHelper()
		file := filepath.Join(c.dir, "results.tsv")
		command := exec.CommandContext(ctx, "../../scripts/trial", append([]string{file}, steps...)...)
		command.Env = append(os.Environ(), "KUBECONFIG="+c.env.kubeconfig, "TRIAL_CLUSTER=embedded", "TRIAL_DIR="+c.dir,
			"TRIAL_NAMESPACE="+c.namespace, "RELEASE="+filepath.Join(c.dir, "cpi.tgz"), "STEMCELL="+os.Getenv("E2E_STEMCELL"),
			"UP_FLAGS="+upFlags)
		out, err := command.CombinedOutput()
		GinkgoWriter.Println(string(out))
		recorded, readErr := os.ReadFile(file)
		Expect(readErr).NotTo(HaveOccurred())
		return string(recorded), err
	}

	It("checks a cluster, installs and deletes a director, and records each result", func(ctx context.Context) {
		c := newUpClient(ctx, "trial")
		flags := []string{"--manifest test/demo/director.yml --ops-file test/demo/small.yml --address", c.address,
			"--var demo_release=" + filepath.Join(c.dir, "demo.tgz"), "--var greeting=hello --var disk_mib=256 --var disk_cloud_properties={}"}
		results, err := runTrial(ctx, c, strings.Join(flags, " "), "check", "up", "down")
		Expect(err).NotTo(HaveOccurred())
		Expect(results).To(MatchRegexp(`^cluster\tembedded, Kubernetes 1\.\d+\.\d+, \d+-\d+-\d+\n` +
			`with\tstemcell \S+, CPI \S+\ncheck\tpassed in \d+ s\nup\tpassed in \d+ s\ndown\tpassed in \d+ s\n$`))
	}, NodeTimeout(2*longTest))

	It("fails if a step fails, and does not run steps without a director", func(ctx context.Context) {
		results, err := runTrial(ctx, newUpClient(ctx, "trial"), "--manifest missing.yml", "up", "down")
		Expect(err).To(MatchError("exit status 1"))
		Expect(results).To(HaveSuffix("\nup\tfailed\n"))
	}, NodeTimeout(longTest))
})
