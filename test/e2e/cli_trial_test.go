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
	It("checks a cluster, installs and deletes a director, and records each result", func(ctx context.Context) {
		c := newUpClient(ctx, "trial")
		results := filepath.Join(c.dir, "results.tsv")
		command := exec.CommandContext(ctx, "../../scripts/trial", results, "check", "up", "down")
		command.Env = append(os.Environ(), "KUBECONFIG="+c.env.kubeconfig, "TRIAL_CLUSTER=embedded", "TRIAL_DIR="+c.dir,
			"TRIAL_NAMESPACE="+c.namespace, "RELEASE="+filepath.Join(c.dir, "cpi.tgz"), "STEMCELL="+os.Getenv("E2E_STEMCELL"),
			"UP_FLAGS="+strings.Join([]string{"--manifest test/demo/director.yml --ops-file test/demo/small.yml --address", c.address,
				"--var demo_release=" + filepath.Join(c.dir, "demo.tgz"), "--var greeting=hello --var disk_mib=256 --var disk_cloud_properties={}"}, " "))
		out, err := command.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		recorded, err := os.ReadFile(results)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(recorded)).To(MatchRegexp(`^cluster\tembedded, Kubernetes 1\.\d+\.\d+, \d+-\d+-\d+\n` +
			`with\tstemcell \S+, CPI \S+\ncheck\tpassed in \d+ s\nup\tpassed in \d+ s\ndown\tpassed in \d+ s\n$`))
	}, NodeTimeout(2*longTest))

	It("fails if a step fails, and does not run steps without a director", func(ctx context.Context) {
		c := newUpClient(ctx, "trial")
		results := filepath.Join(c.dir, "results.tsv")
		command := exec.CommandContext(ctx, "../../scripts/trial", results, "up", "down")
		command.Env = append(os.Environ(), "KUBECONFIG="+c.env.kubeconfig, "TRIAL_DIR="+c.dir, "TRIAL_NAMESPACE="+c.namespace,
			"RELEASE="+filepath.Join(c.dir, "cpi.tgz"), "STEMCELL="+os.Getenv("E2E_STEMCELL"), "UP_FLAGS=--manifest missing.yml")
		Expect(command.Run()).To(MatchError("exit status 1"))
		recorded, err := os.ReadFile(results)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(recorded)).To(HaveSuffix("\nup\tfailed\n"))
	}, NodeTimeout(longTest))
})
