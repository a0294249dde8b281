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

	"bosh-kubernetes-cpi/test/embedded"
)

// greedy is a job that uses up its machine's memory once.
//
//go:embed testdata/greedy
var greedy string

// group returns the machine's cgroup as the node has it.
func (m *machine) group(ctx context.Context) string {
	GinkgoHelper()
	container := strings.TrimPrefix(m.pod(ctx).Status.ContainerStatuses[0].ContainerID, "containerd://")
	found, err := m.w.embedded.VM.Shell(ctx, "find /sys/fs/cgroup/kubepods.slice -type d -name 'cri-containerd-"+container+".scope' -prune")
	Expect(err).NotTo(HaveOccurred())
	Expect(found).NotTo(BeEmpty())
	return found
}

// remounts returns how often the kernel of the node that is a computer has mounted a filesystem of its own anew.
func (w *world) remounts(ctx context.Context) string {
	GinkgoHelper()
	count, err := w.embedded.VM.Shell(ctx, "dmesg | grep -c 'EXT4-fs.*: re-mounted' || true")
	Expect(err).NotTo(HaveOccurred())
	return count
}

// used returns what the kubelet says that the machine uses, as metrics-server asks it: bytes of memory, and seconds of
// CPU time.
func (m *machine) used(ctx context.Context) (memory, cpu float64) {
	GinkgoHelper()
	metrics, err := m.w.embedded.ControlPlane.Kubectl(ctx, "get", "--raw", "/api/v1/nodes/"+embedded.VMNodeName+"/proxy/metrics/resource")
	Expect(err).NotTo(HaveOccurred())
	for line := range strings.Lines(metrics) {
		name, rest, _ := strings.Cut(line, "{")
		labels, values, _ := strings.Cut(rest, "} ")
		value, _, _ := strings.Cut(values, " ")
		if !strings.Contains(labels, `pod="`+m.cid+`"`) {
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

var _ = Describe("On a node with an operating system of its own, cgroup v2 and a kubelet's usual cgroups", Label("vm-node", "extended"), Serial, func() {
	kinds := func() []TableEntry {
		return []TableEntry{
			Entry("with runit", "E2E_STEMCELL", "/init", NodeTimeout(time.Hour)),
			Entry("with systemd", "E2E_STEMCELL_SYSTEMD", "/init.scope", NodeTimeout(time.Hour)),
		}
	}

	DescribeTable("a machine has cgroups of its own, loses no more than a job when its memory is used up, and restarts as it was",
		func(ctx context.Context, stemcell, group string) {
			w := newVMWorld(ctx)
			remounts := w.remounts(ctx)
			m := w.createMachineFrom(ctx, os.Getenv(stemcell), nil)
			Expect(w.remounts(ctx)).To(Equal(remounts), "the node's root filesystem is left alone")

			By("its cgroups: the container's, and none of the node's")
			Expect(m.run(ctx, "nsenter --target 1 --cgroup cat /proc/1/cgroup")).To(Equal("0::" + group))
			Expect(m.run(ctx, "cd /sys/fs/cgroup && test -e memory.max && echo *")).NotTo(ContainSubstring("kubepods"))
			Expect(w.embedded.VM.Shell(ctx, "cat "+m.group(ctx)+"/memory.oom.group")).To(Equal("0"))
			Eventually(func(g Gomega) {
				memory, cpu := m.used(ctx)
				g.Expect(memory).To(And(BeNumerically(">", 4<<20), BeNumerically("<=", 512<<20)))
				g.Expect(cpu).To(BeNumerically(">", 1))
			}).WithContext(ctx).Should(Succeed())

			By("a job that uses up its memory")
			m.run(ctx, keeper)
			m.awaitJob(ctx)
			agent, job := m.agentProcess(ctx), m.run(ctx, "cat /var/vcap/sys/run/keeper/keeper.pid")
			m.run(ctx, greedy)
			Eventually(func() (string, error) { return m.try(ctx, "wc -l </var/vcap/data/greedy.starts") }).WithContext(ctx).Should(Equal("2"))
			Expect(w.embedded.VM.Shell(ctx, "grep '^oom_kill ' "+m.group(ctx)+"/memory.events")).To(Equal("oom_kill 1"))
			Expect(m.agentProcess(ctx)).To(Equal(agent))
			Expect(m.run(ctx, "cat /var/vcap/sys/run/keeper/keeper.pid")).To(Equal(job))
			Expect(m.restarts(ctx)).To(BeZero())

			By("reboot_vm")
			m.run(ctx, change)
			changes := m.run(ctx, changed)
			w.must(ctx, "reboot_vm", m.cid)
			m.awaitAgent(ctx)
			m.awaitJob(ctx)
			Expect(m.restarts(ctx)).To(BeEquivalentTo(1))
			Expect(m.run(ctx, changed)).To(Equal(changes))
			Expect(m.run(ctx, "nsenter --target 1 --cgroup cat /proc/1/cgroup")).To(Equal("0::" + group))

			By("its end, of which it is told")
			w.must(ctx, "delete_vm", m.cid)
		},
		kinds())

	DescribeTable("a machine runs containers with limits of their own, as BPM and Garden ask for",
		func(ctx context.Context, stemcell, _ string) {
			w := newVMWorld(ctx)
			Expect(w.createMachineFrom(ctx, os.Getenv(stemcell), map[string]any{"memory": 768}).runsContainers(ctx)).To(ContainSubstring(xfsQuota), "this kernel has quotas")
			Expect(w.embedded.VM.Shell(ctx, "find /sys/fs/cgroup -name bpm -o -name garden")).To(BeEmpty())
		},
		kinds())
})
