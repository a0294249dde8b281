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

// newVMWorld is a world for machines on the node that is a computer, which is slow.
func newVMWorld(ctx context.Context) *world {
	GinkgoHelper()
	w := newWorldWith(ctx, map[string]any{
		"timeouts": map[string]any{"create_vm": "20m", "attach_disk": "10m", "detach_disk": "10m", "delete_vm": "10m", "other": "10m"},
	})
	if _, err := w.embedded.ControlPlane.Kubectl(ctx, "get", "node", embedded.VMNodeName); err != nil {
		Skip("the cluster has no node that is a computer: make cluster-up VM_NODE=1")
	}
	w.place = place{
		properties: map[string]any{
			"memory":      512,
			"zone":        strings.Replace(embedded.VMNodeName, "node-", "zone-", 1),
			"tolerations": []map[string]any{{"key": embedded.VMTaint, "operator": "Exists"}},
		},
		beforeAgent: func(ctx context.Context, m *machine) {
			Expect(m.pod(ctx).Spec.NodeName).To(Equal(embedded.VMNodeName))
			// The agent starts auditd, which ends on this kernel: it has no audit.
			m.run(ctx, "sed -i /auditd/d /var/vcap/bosh/bin/bosh-start-logging-and-auditing")
		},
		ctr: func(ctx context.Context, arguments ...string) (string, error) {
			return w.embedded.VM.Ctr(ctx, strings.Join(arguments, " "))
		},
	}
	SetDefaultEventuallyTimeout(10 * time.Minute)
	SetDefaultEventuallyPollingInterval(2 * time.Second)
	DeferCleanup(setPatience)
	return w
}

// group returns the machine's cgroup as the node has it.
func (m *machine) group(ctx context.Context) string {
	GinkgoHelper()
	container := strings.TrimPrefix(m.pod(ctx).Status.ContainerStatuses[0].ContainerID, "containerd://")
	found, err := m.w.embedded.VM.Exec(ctx, "find /sys/fs/cgroup/kubepods.slice -type d -name 'cri-containerd-"+container+".scope' -prune")
	Expect(err).NotTo(HaveOccurred())
	Expect(found).NotTo(BeEmpty())
	return found
}

// remounts returns how often the kernel of the node that is a computer has mounted a filesystem of its own anew.
func (w *world) remounts(ctx context.Context) string {
	GinkgoHelper()
	count, err := w.embedded.VM.Exec(ctx, "dmesg | grep -c 'EXT4-fs.*: re-mounted' || true")
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
			Expect(w.embedded.VM.Exec(ctx, "cat "+m.group(ctx)+"/memory.oom.group")).To(Equal("0"))
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
			Expect(w.embedded.VM.Exec(ctx, "grep '^oom_kill ' "+m.group(ctx)+"/memory.events")).To(Equal("oom_kill 1"))
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

	DescribeTable("a machine that restarts is the same machine again, with its disk there before any job",
		func(ctx context.Context, stemcell, _ string) {
			newVMWorld(ctx).restartsAsItWas(ctx, os.Getenv(stemcell))
		},
		kinds())

	Describe("a persistent disk", Ordered, func() {
		s := subject{blocks: 16}
		BeforeAll(func(ctx context.Context) { s.prepareIn(ctx, newVMWorld(ctx), onFilesystem) }, NodeTimeout(time.Hour))
		isItsMachines(&s)
	})

	DescribeTable("a machine runs containers with limits of their own, as BPM and Garden ask for",
		func(ctx context.Context, stemcell, _ string) {
			w := newVMWorld(ctx)
			Expect(w.createMachineFrom(ctx, os.Getenv(stemcell), map[string]any{"memory": 768}).runsContainers(ctx)).To(ContainSubstring(xfsQuota), "this kernel has quotas")
			Expect(w.embedded.VM.Exec(ctx, "find /sys/fs/cgroup -name bpm -o -name garden")).To(BeEmpty())
		},
		kinds())

	DescribeTable("a disk is attached, there after a restart, and detached",
		func(ctx context.Context, stemcell, _ string) {
			w := newVMWorld(ctx)
			m := w.createMachineFrom(ctx, os.Getenv(stemcell), nil)
			disk := w.createDisk(ctx, 64, map[string]any{})
			m.attach(ctx, disk)
			m.run(ctx, "echo kept >/var/vcap/store/file && sync")
			m.run(ctx, keeper)
			m.awaitJob(ctx)
			w.must(ctx, "reboot_vm", m.cid)
			m.awaitAgent(ctx)
			m.awaitJob(ctx)
			Expect(m.run(ctx, "cat /var/vcap/store/file; cat /var/vcap/data/keeper.starts")).To(Equal("kept\nwith\nwith"))
			m.tell(ctx, "stop")
			m.detach(ctx, disk)
			m.attach(ctx, disk)
			Expect(m.run(ctx, "cat /var/vcap/store/file")).To(Equal("kept"))
			m.detach(ctx, disk)
			w.must(ctx, "delete_disk", disk)
		},
		kinds())

	for kind, stemcell := range map[string]string{"runit": "E2E_STEMCELL", "systemd": "E2E_STEMCELL_SYSTEMD"} {
		Describe("a database, a container and a store of layers in a machine with "+kind, Ordered, func() {
			s := &survivors{}
			BeforeAll(func(ctx context.Context) {
				s.world = newVMWorld(ctx)
				s.bring = func(ctx context.Context) *machine {
					return s.createMachineFrom(ctx, os.Getenv(stemcell), map[string]any{"memory": 1024})
				}
				s.prepare(ctx, onFilesystem)
				s.m.run(ctx, "sync") // a power cut takes what no one has had written out, as of a VM elsewhere: here the jobs' own files
			}, NodeTimeout(time.Hour))

			again := func(ctx context.Context, deed func(*embedded.VMNode)) {
				GinkgoHelper()
				before := s.m.identity(ctx)
				s.survive(ctx, func() {
					deed(s.embedded.VM)
					s.restarted(ctx, s.m.cid, before.Restarts)
					s.m.awaitAgent(ctx)
				})
				after := s.m.identity(ctx)
				Expect([]string{after.UID, after.Address}).To(Equal([]string{before.UID, before.Address}))
			}

			It("survive a power cut of the node", func(ctx context.Context) {
				again(ctx, func(node *embedded.VMNode) {
					Expect(node.Stop(ctx)).To(Succeed())
					Expect(node.Start(ctx)).To(Succeed())
				})
			}, NodeTimeout(time.Hour))

			It("survive a reboot of the node", func(ctx context.Context) {
				again(ctx, func(node *embedded.VMNode) { Expect(node.Reboot(ctx)).To(Succeed()) })
			}, NodeTimeout(time.Hour))
		})
	}
})
