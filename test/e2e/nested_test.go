//go:build e2e

package e2e

import (
	"context"
	_ "embed"
	"os"
	"os/exec"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/embedded"
)

// nested makes containers in a machine.
//
//go:embed testdata/nested
var nested string

// give runs a shell command in the machine, with this standard input.
func (m *machine) give(ctx context.Context, input, command string) string {
	GinkgoHelper()
	out, err := embedded.RunInput(ctx, input, "kubectl", "--kubeconfig", m.w.kubeconfig, "exec", "-i", "-n", m.w.namespace, m.cid,
		"--", "bash", "-c", command)
	Expect(err).NotTo(HaveOccurred(), out)
	return out
}

// runsContainers fails unless the machine can run containers with limits of their own, within its Pod's. It returns what it
// found, a line for each.
func (m *machine) runsContainers(ctx context.Context) string {
	GinkgoHelper()
	path, err := exec.LookPath("runc")
	Expect(err).NotTo(HaveOccurred())
	runc, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	m.give(ctx, string(runc), "cat >/usr/local/bin/runc && chmod 0755 /usr/local/bin/runc")
	said := m.give(ctx, nested, "cat >/var/vcap/data/containers && bash /var/vcap/data/containers")
	container := strings.TrimPrefix(m.pod(ctx).Status.ContainerStatuses[0].ContainerID, "containerd://")
	Expect(said).To(And(
		ContainSubstring("bpm: 67108864\n"),
		MatchRegexp(`(?m)(^cgroup: |:)\S*`+container+`\S*/bpm$`),
		Not(MatchRegexp(`(?m)^(cgroup: )?\d+:(memory|cpu|pids)?:/bpm$`)),
		ContainSubstring("seccomp: refused\n"),
		ContainSubstring("memory: 137\n"),
		ContainSubstring("still: running\n"),
		ContainSubstring("garden: 67108864, 0 is 100000\n"),
		ContainSubstring("network: reached\n"),
		Or(ContainSubstring("nat: added\n"), ContainSubstring("nat: the kernel has none\n")),
		ContainSubstring("store: xfs\n"),
		Or(ContainSubstring(xfsQuota), ContainSubstring("quota: the kernel has none\n")),
	))
	return said
}

// xfsQuota is what a machine finds where the kernel has quotas of XFS.
const xfsQuota = "quota: 5242880\n"

var _ = Describe("A machine that runs containers", Label("machines"), func() {
	DescribeTable("gives them limits of their own within its own, as BPM and Garden ask for",
		func(ctx context.Context, stemcell string) {
			newWorld(ctx).createMachineFrom(ctx, os.Getenv(stemcell), map[string]any{"memory": 768}).runsContainers(ctx)
		},
		stemcellKinds())
})
