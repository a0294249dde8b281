//go:build e2e

package e2e

import (
	"context"
	_ "embed"
	"os"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/harness/embedded"
)

// greedyJobScript installs a job that uses up the VM's memory once.
//
//go:embed testdata/greedy
var greedyJobScript string

// cgroupPath returns the path of the VM's cgroup on the node.
func (vm *testVM) cgroupPath(ctx context.Context) string {
	GinkgoHelper()
	container := strings.TrimPrefix(vm.pod(ctx).Status.ContainerStatuses[0].ContainerID, "containerd://")
	found, err := vm.env.embedded.VM.Shell(ctx, "find /sys/fs/cgroup/kubepods.slice -type d -name 'cri-containerd-"+container+".scope' -prune")
	Expect(err).NotTo(HaveOccurred())
	Expect(found).NotTo(BeEmpty())
	return found
}

// remountCount returns how often the kernel of the VM node remounted a filesystem.
func (env *testEnv) remountCount(ctx context.Context) string {
	GinkgoHelper()
	count, err := env.embedded.VM.Shell(ctx, "dmesg | grep -c 'EXT4-fs.*: re-mounted' || true")
	Expect(err).NotTo(HaveOccurred())
	return count
}

// resourceUsage returns the VM's memory in bytes and its CPU time in seconds, from the kubelet's metrics that metrics-server reads.
func (vm *testVM) resourceUsage(ctx context.Context) (memory, cpu float64) {
	GinkgoHelper()
	metrics, err := vm.env.embedded.ControlPlane.Kubectl(ctx, "get", "--raw", "/api/v1/nodes/"+embedded.VMNodeName+"/proxy/metrics/resource")
	Expect(err).NotTo(HaveOccurred())
	for line := range strings.Lines(metrics) {
		name, rest, _ := strings.Cut(line, "{")
		labels, values, _ := strings.Cut(rest, "} ")
		value, _, _ := strings.Cut(values, " ")
		if !strings.Contains(labels, `pod="`+vm.cid+`"`) {
			continue
		}
		switch name {
		case "container_memory_working_set_bytes":
			memory, err = strconv.ParseFloat(value, 64)
		case "container_cpu_usage_seconds_total":
			cpu, err = strconv.ParseFloat(value, 64)
		}
		Expect(err).NotTo(HaveOccurred())
	}
	return memory, cpu
}

var _ = Describe("On a VM node with cgroup v2 and the kubelet's default cgroups,", Label("vm-node", "extended"), Serial, func() {
	entries := func() []TableEntry {
		return []TableEntry{
			Entry("with runit", "E2E_STEMCELL", "/init", NodeTimeout(time.Hour)),
			Entry("with systemd", "E2E_STEMCELL_SYSTEMD", "/init.scope", NodeTimeout(time.Hour)),
		}
	}

	DescribeTable("a VM has its own cgroups, loses only one job when its memory is used up, and keeps its state over a reboot",
		func(ctx context.Context, stemcell, group string) {
			env := newVMNodeEnv(ctx)
			remounts := env.remountCount(ctx)
			vm := env.createVMFromStemcell(ctx, os.Getenv(stemcell), nil)
			Expect(env.remountCount(ctx)).To(Equal(remounts), "the node's root filesystem is not remounted")

			By("checking that the VM sees its container's cgroups, and no cgroups of the node")
			Expect(vm.run(ctx, "nsenter --target 1 --cgroup cat /proc/1/cgroup")).To(Equal("0::" + group))
			Expect(vm.run(ctx, "cd /sys/fs/cgroup && test -e memory.max && echo *")).NotTo(ContainSubstring("kubepods"))
			Expect(env.embedded.VM.Shell(ctx, "cat "+vm.cgroupPath(ctx)+"/memory.oom.group")).To(Equal("0"))
			Eventually(func(g Gomega) {
				memory, cpu := vm.resourceUsage(ctx)
				g.Expect(memory).To(And(BeNumerically(">", 4<<20), BeNumerically("<=", 512<<20)))
				g.Expect(cpu).To(BeNumerically(">", 1))
			}).WithContext(ctx).Should(Succeed())

			By("using up the VM's memory in a job")
			vm.run(ctx, keeperJobScript)
			vm.waitForJob(ctx)
			agent, job := vm.agentPID(ctx), vm.run(ctx, "cat /var/vcap/sys/run/keeper/keeper.pid")
			vm.run(ctx, greedyJobScript)
			Eventually(func() (string, error) { return vm.tryRun(ctx, "wc -l </var/vcap/data/greedy.starts") }).WithContext(ctx).Should(Equal("2"))
			Expect(env.embedded.VM.Shell(ctx, "grep '^oom_kill ' "+vm.cgroupPath(ctx)+"/memory.events")).To(Equal("oom_kill 1"))
			Expect(vm.agentPID(ctx)).To(Equal(agent))
			Expect(vm.run(ctx, "cat /var/vcap/sys/run/keeper/keeper.pid")).To(Equal(job))
			Expect(vm.restartCount(ctx)).To(BeZero())

			By("rebooting the VM")
			vm.run(ctx, modifySystemScript)
			changes := vm.run(ctx, printModificationsScript)
			env.mustCall(ctx, "reboot_vm", vm.cid)
			vm.waitForAgent(ctx)
			vm.waitForJob(ctx)
			Expect(vm.restartCount(ctx)).To(BeEquivalentTo(1))
			Expect(vm.run(ctx, printModificationsScript)).To(Equal(changes))
			Expect(vm.run(ctx, "nsenter --target 1 --cgroup cat /proc/1/cgroup")).To(Equal("0::" + group))

			By("deleting the VM")
			env.mustCall(ctx, "delete_vm", vm.cid)
		},
		entries())

	DescribeTable("a VM applies the limits of its containers, as BPM and Garden require", Label("garden"),
		func(ctx context.Context, stemcell, _ string) {
			env := newVMNodeEnv(ctx)
			Expect(env.createVMFromStemcell(ctx, os.Getenv(stemcell), map[string]any{"memory": 768}).expectRunsContainers(ctx)).To(ContainSubstring(xfsQuota), "this kernel supports quotas")
			Expect(env.embedded.VM.Shell(ctx, "find /sys/fs/cgroup -name bpm -o -name garden")).To(BeEmpty())
		},
		entries())
})
