//go:build e2e

package e2e

import (
	"bufio"
	"context"
	_ "embed"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/embedded"
)

// survivorJobs gives a machine's monit three jobs: a counter in a container as BPM's, PostgreSQL, and a store as Garden's.
//
//go:embed testdata/survivors
var survivorJobs string

// survivors are these jobs in a machine with a persistent disk: one for many scenarios.
type survivors struct {
	*world
	stemcell string // the variable that names its tarball
	m        *machine
	disk     string
}

// survivorsDisk is the size of the disk that they begin with, in MiB.
const survivorsDisk = 320

// bring makes a machine for them.
func (s *survivors) bring(ctx context.Context) *machine {
	GinkgoHelper()
	return s.createMachineFrom(ctx, os.Getenv(s.stemcell), map[string]any{"memory": 1024})
}

// prepare brings them, on a disk that can be resized.
func (s *survivors) prepare(ctx context.Context) {
	GinkgoHelper()
	s.m = s.bring(ctx)
	s.disk = s.createDisk(ctx, survivorsDisk, map[string]any{"storage_class": embedded.CSIClass})
	s.m.attach(ctx, s.disk)
	s.install(ctx)
	s.m.run(ctx, "echo kept >/var/vcap/data/layers/store/mark")
}

// install brings the jobs, as an update brings those of a machine that is new, and waits until they work.
func (s *survivors) install(ctx context.Context) {
	GinkgoHelper()
	path, err := exec.LookPath("runc")
	Expect(err).NotTo(HaveOccurred())
	for file, command := range map[string]string{
		path:                      "cat >/usr/local/bin/runc && chmod 0755 /usr/local/bin/runc",
		os.Getenv("E2E_POSTGRES"): "mkdir -p /var/vcap/packages/postgres && tar -xzC /var/vcap/packages/postgres",
	} {
		content, err := os.ReadFile(file)
		Expect(err).NotTo(HaveOccurred())
		s.m.give(ctx, string(content), command)
	}
	s.m.give(ctx, survivorJobs, "bash")
	s.work(ctx)
}

// work waits until all three jobs work, with nobody's help.
func (s *survivors) work(ctx context.Context) {
	GinkgoHelper()
	story := func() string {
		said, _ := s.m.try(ctx, "/var/vcap/bosh/bin/monit summary; tail -n 5 /var/vcap/sys/run/*/log /var/vcap/data/counter/log")
		return said + s.m.log(ctx)
	}
	for _, job := range []string{"kill -0 $(cat /var/vcap/sys/run/counter/counter.pid) && test -e /var/vcap/store/counter/count",
		"/var/vcap/jobs/postgres/bin/rows || /var/vcap/jobs/postgres/bin/commit | grep -m 1 .",
		"kill -0 $(cat /var/vcap/sys/run/layers/layers.pid)"} {
		Eventually(func() error { _, err := s.m.try(ctx, job); return err }, 4*time.Minute).WithContext(ctx).WithPolling(time.Second).Should(Succeed(), story)
	}
}

// count is what the counter has counted to.
func (s *survivors) count(ctx context.Context) int {
	GinkgoHelper()
	count, err := strconv.Atoi(s.m.run(ctx, "cat /var/vcap/store/counter/count"))
	Expect(err).NotTo(HaveOccurred())
	return count
}

// committing has rows committed until it is told to stop, and then returns the last one of which that was said.
func (s *survivors) committing(ctx context.Context) (stop func() int64) {
	GinkgoHelper()
	client := exec.CommandContext(ctx, "kubectl", "--kubeconfig", s.kubeconfig, "exec", "-n", s.namespace, s.m.cid, "--",
		"/var/vcap/jobs/postgres/bin/commit")
	said, err := client.StdoutPipe()
	Expect(err).NotTo(HaveOccurred())
	Expect(client.Start()).To(Succeed())
	var last atomic.Int64
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(said); lines.Scan(); {
			if row, err := strconv.ParseInt(lines.Text(), 10, 64); err == nil {
				last.Store(row)
			}
		}
	}()
	Eventually(last.Load).WithContext(ctx).ShouldNot(BeZero())
	return func() int64 {
		_ = client.Process.Kill()
		<-ended
		_ = client.Wait()
		return last.Load()
	}
}

// survive does this to the machine while its jobs work, and expects that they work again by themselves afterwards, with all
// that they had: a count that has not gone back, every row that was committed, and, when the machine is the same one still, what was
// in its store of layers. The quota holds in a store that is made again, too.
func (s *survivors) survive(ctx context.Context, deed func()) {
	GinkgoHelper()
	stop, machine, counted := s.committing(ctx), s.m.cid, s.count(ctx)
	deed()
	committed := stop()
	s.work(ctx)
	Expect(s.count(ctx)).To(BeNumerically(">=", counted))
	Eventually(func() int { return s.count(ctx) }).WithContext(ctx).Should(BeNumerically(">", counted))
	words := strings.Fields(s.m.run(ctx, "/var/vcap/jobs/postgres/bin/rows"))
	Expect(words[0]).To(Equal(words[4]), "each row up to the last is there")
	Expect(strconv.ParseInt(words[0], 10, 64)).To(BeNumerically(">=", committed))
	mark := "gone"
	if s.m.cid == machine {
		mark = "kept"
	}
	Expect(s.m.run(ctx, "cat /var/vcap/data/layers/store/mark 2>/dev/null || echo gone")).To(Equal(mark))
	quota := Or(Equal("xfs\n5242880"), Equal("xfs\nthe kernel has none"))
	if onVMNode {
		quota = Equal("xfs\n5242880")
	}
	Expect(s.m.run(ctx, "findmnt --noheadings --output FSTYPE /var/vcap/data/layers/store; /var/vcap/jobs/layers/bin/fill")).To(quota)
}

// stopped does this while the director has stopped the jobs.
func (s *survivors) stopped(ctx context.Context, deed func()) {
	GinkgoHelper()
	s.m.tell(ctx, "stop")
	deed()
	s.m.tell(ctx, "start")
}

var _ = Describe("A database, a container and a store of layers", Label("machines", "extended"), Serial, func() {
	for kind, stemcell := range map[string]string{"runit": "E2E_STEMCELL", "systemd": withSystemd} {
		Describe("in a machine with "+kind, Ordered, func() {
			s := &survivors{stemcell: stemcell}
			BeforeAll(func(ctx context.Context) {
				s.world = newWorld(ctx)
				s.prepare(ctx)
				s.m.run(ctx, "sync") // a power cut takes what no one has had written out, as of a VM elsewhere: here the jobs' own files
			}, NodeTimeout(longTest))

			It("survive that its PID 1 is killed", func(ctx context.Context) {
				s.survive(ctx, func() { s.m.killInit(ctx); s.m.awaitAgent(ctx) })
			}, NodeTimeout(longTest))

			It("survive reboot_vm", func(ctx context.Context) {
				s.survive(ctx, func() { s.must(ctx, "reboot_vm", s.m.cid); s.m.awaitAgent(ctx) })
			}, NodeTimeout(longTest))

			It("survive a power cut of its node", func(ctx context.Context) {
				s.survive(ctx, func() {
					before := s.m.restarts(ctx)
					Expect(s.powerCut(ctx)).To(Succeed())
					s.restarted(ctx, s.m.cid, before)
					s.m.awaitAgent(ctx)
				})
			}, NodeTimeout(longTest))

			if onVMNode {
				It("survive an orderly reboot of their node", func(ctx context.Context) {
					s.survive(ctx, func() {
						before := s.m.restarts(ctx)
						Expect(s.embedded.VM.Reboot(ctx)).To(Succeed())
						s.restarted(ctx, s.m.cid, before)
						s.m.awaitAgent(ctx)
					})
				}, NodeTimeout(longTest))
			}

			It("survive resize_disk", func(ctx context.Context) {
				s.survive(ctx, func() {
					s.stopped(ctx, func() {
						s.m.detach(ctx, s.disk)
						s.must(ctx, "resize_disk", s.disk, survivorsDisk+64)
						s.m.attach(ctx, s.disk)
					})
				})
				Expect(s.m.sizeMiB(ctx, s.disk)).To(Equal(survivorsDisk + 64))
			}, NodeTimeout(longTest))

			It("survive the migration to another disk", func(ctx context.Context) {
				next := s.createDisk(ctx, survivorsDisk+128, onBlock)
				s.survive(ctx, func() {
					s.stopped(ctx, func() {
						s.m.attach(ctx, next)
						s.m.tell(ctx, "migrate_disk", s.disk, next)
						s.m.tell(ctx, "remove_persistent_disk", s.disk)
						s.must(ctx, "detach_disk", s.m.cid, s.disk)
					})
				})
				s.must(ctx, "delete_disk", s.disk)
				s.disk = next
			}, NodeTimeout(longTest))

			It("survive a drain of its node, after which the VM is made again", func(ctx context.Context) {
				s.survive(ctx, func() {
					s.drained(ctx)
					_, err := s.Call(ctx, "delete_vm", s.m.cid)
					Expect(err).NotTo(HaveOccurred())
					s.m = s.bring(ctx)
					s.m.attach(ctx, s.disk)
					s.install(ctx)
				})
			}, NodeTimeout(longTest))
		})
	}
})

// drained drains the node of this machine and of what is attached to it.
func (s *survivors) drained(ctx context.Context) {
	GinkgoHelper()
	node, kubectl := s.m.pod(ctx).Spec.NodeName, s.embedded.ControlPlane.Kubectl
	_, err := kubectl(ctx, "drain", node, "--force", "--delete-emptydir-data", "--ignore-daemonsets",
		"--pod-selector", "bosh.cloudfoundry.org/vm="+s.m.cid, "--timeout", "2m")
	Expect(err).NotTo(HaveOccurred())
	_, err = kubectl(ctx, "uncordon", node)
	Expect(err).NotTo(HaveOccurred())
}
