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

	"bosh-kubernetes-cpi/test/harness/embedded"
)

// nestedContainersScript creates containers in a VM and prints their limits.
//
//go:embed testdata/nested
var nestedContainersScript string

// runWithInput runs a shell command in the VM with this standard input.
func (vm *testVM) runWithInput(ctx context.Context, input, command string) string {
	GinkgoHelper()
	out, err := embedded.RunInput(ctx, input, "kubectl", "--kubeconfig", vm.env.kubeconfig, "exec", "-i", "-n", vm.env.namespace, vm.cid,
		"--", "bash", "-c", command)
	Expect(err).NotTo(HaveOccurred(), out)
	return out
}

// expectRunsContainers expects that the VM can run containers with their own limits in the cgroup of its Pod. It returns the output of
// nestedContainersScript.
func (vm *testVM) expectRunsContainers(ctx context.Context) string {
	GinkgoHelper()
	path, err := exec.LookPath("runc")
	Expect(err).NotTo(HaveOccurred())
	runc, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	vm.runWithInput(ctx, string(runc), "cat >/usr/local/bin/runc && chmod 0755 /usr/local/bin/runc")
	output := vm.runWithInput(ctx, nestedContainersScript, "cat >/var/vcap/data/containers && bash /var/vcap/data/containers")
	container := strings.TrimPrefix(vm.pod(ctx).Status.ContainerStatuses[0].ContainerID, "containerd://")
	Expect(output).To(And(
		ContainSubstring("bpm: 67108864\n"),
		MatchRegexp(`(?m)(^cgroup: |:)\S*`+container+`\S*/bpm$`),
		Not(MatchRegexp(`(?m)^(cgroup: )?\d+:(memory|cpu|pids)?:/bpm$`)),
		ContainSubstring("seccomp: denied\n"),
		ContainSubstring("memory: 137\n"),
		ContainSubstring("still: running\n"),
		ContainSubstring("garden: 67108864, 0 is 100000\n"),
		ContainSubstring("network: reached\n"),
		Or(ContainSubstring("nat: added\n"), ContainSubstring("nat: the kernel has none\n")),
		ContainSubstring("store: xfs\n"),
		Or(ContainSubstring(xfsQuota), ContainSubstring("quota: the kernel has none\n")),
	))
	return output
}

// xfsQuota is the output of nestedContainersScript if the kernel supports XFS quotas.
const xfsQuota = "quota: 5242880\n"

var _ = Describe("A VM that runs containers", Label("vms", "garden"), func() {
	DescribeTable("applies their limits in its own cgroup, as BPM and Garden require",
		func(ctx context.Context, stemcell string) {
			newTestEnv(ctx).createVMFromStemcell(ctx, os.Getenv(stemcell), map[string]any{"memory": 768}).expectRunsContainers(ctx)
		},
		stemcellEntries("extended"))
})
