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

// workloadsScript gives a machine's monit three jobs: a counter in a container as BPM's, PostgreSQL, and a store as Garden's.
//
//go:embed testdata/survivors
var workloadsScript string

// workloads are these jobs in a machine with a persistent disk: one for many scenarios.
type workloads struct {
	*testEnv
	stemcell string // the variable that names its tarball
	vm       *testVM
	disk     string
}

// workloadsDiskMiB is the size of the disk that they begin with, in MiB.
const workloadsDiskMiB = 320

// createWorkloadVM makes a machine for them.
func (s *workloads) createWorkloadVM(ctx context.Context) *testVM {
	GinkgoHelper()
	return s.createVMFromStemcell(ctx, os.Getenv(s.stemcell), map[string]any{"memory": 1024})
}

// setUp brings them, on a disk that can be resized.
func (s *workloads) setUp(ctx context.Context) {
	GinkgoHelper()
	s.vm = s.createWorkloadVM(ctx)
	s.disk = s.createDisk(ctx, workloadsDiskMiB, map[string]any{"storage_class": embedded.CSIClass})
	s.vm.attach(ctx, s.disk)
	s.installJobs(ctx)
	s.vm.run(ctx, "echo kept >/var/vcap/data/layers/store/mark")
}

// installJobs brings the jobs, as an update brings those of a machine that is new, and waits until they work.
func (s *workloads) installJobs(ctx context.Context) {
	GinkgoHelper()
	path, err := exec.LookPath("runc")
	Expect(err).NotTo(HaveOccurred())
	for file, command := range map[string]string{
		path:                      "cat >/usr/local/bin/runc && chmod 0755 /usr/local/bin/runc",
		os.Getenv("E2E_POSTGRES"): "mkdir -p /var/vcap/packages/postgres && tar -xzC /var/vcap/packages/postgres",
	} {
		content, err := os.ReadFile(file)
		Expect(err).NotTo(HaveOccurred())
		s.vm.runWithInput(ctx, string(content), command)
	}
	s.vm.runWithInput(ctx, workloadsScript, "bash")
	s.waitForJobs(ctx)
}

// waitForJobs waits until all three jobs work, with nobody's help.
func (s *workloads) waitForJobs(ctx context.Context) {
	GinkgoHelper()
	describeState := func() string {
		output, _ := s.vm.tryRun(ctx, "/var/vcap/bosh/bin/monit summary; tail -n 5 /var/vcap/sys/run/*/log /var/vcap/data/counter/log")
		return output + s.vm.logs(ctx)
	}
	for _, job := range []string{"kill -0 $(cat /var/vcap/sys/run/counter/counter.pid) && test -e /var/vcap/store/counter/count",
		"/var/vcap/jobs/postgres/bin/rows || /var/vcap/jobs/postgres/bin/commit | grep -m 1 .",
		"kill -0 $(cat /var/vcap/sys/run/layers/layers.pid)"} {
		Eventually(func() error { _, err := s.vm.tryRun(ctx, job); return err }, 4*time.Minute).WithContext(ctx).WithPolling(time.Second).Should(Succeed(), describeState)
	}
}

// counterValue is what the counter has counted to.
func (s *workloads) counterValue(ctx context.Context) int {
	GinkgoHelper()
	count, err := strconv.Atoi(s.vm.run(ctx, "cat /var/vcap/store/counter/count"))
	Expect(err).NotTo(HaveOccurred())
	return count
}

// startCommits has rows committed until it is told to stop, and then returns the last one of which that was said.
func (s *workloads) startCommits(ctx context.Context) (stop func() int64) {
	GinkgoHelper()
	client := exec.CommandContext(ctx, "kubectl", "--kubeconfig", s.kubeconfig, "exec", "-n", s.namespace, s.vm.cid, "--",
		"/var/vcap/jobs/postgres/bin/commit")
	output, err := client.StdoutPipe()
	Expect(err).NotTo(HaveOccurred())
	Expect(client.Start()).To(Succeed())
	var last atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			if row, err := strconv.ParseInt(lines.Text(), 10, 64); err == nil {
				last.Store(row)
			}
		}
	}()
	Eventually(last.Load).WithContext(ctx).ShouldNot(BeZero())
	return func() int64 {
		_ = client.Process.Kill()
		<-done
		_ = client.Wait()
		return last.Load()
	}
}

// expectSurvives does this to the machine while its jobs work, and expects that they work again by themselves afterwards, with all
// that they had: a count that has not gone back, every row that was committed, and, when the machine is the same one still, what was
// in its store of layers. The quota holds in a store that is made again, too.
func (s *workloads) expectSurvives(ctx context.Context, action func()) {
	GinkgoHelper()
	stop, vmCID, previousCount := s.startCommits(ctx), s.vm.cid, s.counterValue(ctx)
	action()
	committed := stop()
	s.waitForJobs(ctx)
	Expect(s.counterValue(ctx)).To(BeNumerically(">=", previousCount))
	Eventually(func() int { return s.counterValue(ctx) }).WithContext(ctx).Should(BeNumerically(">", previousCount))
	words := strings.Fields(s.vm.run(ctx, "/var/vcap/jobs/postgres/bin/rows"))
	Expect(words[0]).To(Equal(words[4]), "each row up to the last is there")
	Expect(strconv.ParseInt(words[0], 10, 64)).To(BeNumerically(">=", committed))
	mark := "gone"
	if s.vm.cid == vmCID {
		mark = "kept"
	}
	Expect(s.vm.run(ctx, "cat /var/vcap/data/layers/store/mark 2>/dev/null || echo gone")).To(Equal(mark))
	quota := Or(Equal("xfs\n5242880"), Equal("xfs\nthe kernel has none"))
	if onVMNode {
		quota = Equal("xfs\n5242880")
	}
	Expect(s.vm.run(ctx, "findmnt --noheadings --output FSTYPE /var/vcap/data/layers/store; /var/vcap/jobs/layers/bin/fill")).To(quota)
}

// withJobsStopped does this while the director has stopped the jobs.
func (s *workloads) withJobsStopped(ctx context.Context, action func()) {
	GinkgoHelper()
	s.vm.callAgent(ctx, "stop")
	action()
	s.vm.callAgent(ctx, "start")
}

var _ = Describe("A database, a container and a store of layers", Label("machines", "extended"), Serial, func() {
	for kind, stemcell := range map[string]string{"runit": "E2E_STEMCELL", "systemd": withSystemd} {
		Describe("in a machine with "+kind, Ordered, func() {
			s := &workloads{stemcell: stemcell}
			BeforeAll(func(ctx context.Context) {
				s.testEnv = newTestEnv(ctx)
				s.setUp(ctx)
				s.vm.run(ctx, "sync") // a power cut takes what no one has had written out, as of a VM elsewhere: here the jobs' own files
			}, NodeTimeout(longTest))

			It("survive that its PID 1 is killed", func(ctx context.Context) {
				s.expectSurvives(ctx, func() { s.vm.killInit(ctx); s.vm.waitForAgent(ctx) })
			}, NodeTimeout(longTest))

			It("survive reboot_vm", func(ctx context.Context) {
				s.expectSurvives(ctx, func() { s.mustCall(ctx, "reboot_vm", s.vm.cid); s.vm.waitForAgent(ctx) })
			}, NodeTimeout(longTest))

			It("survive a power cut of its node", func(ctx context.Context) {
				s.expectSurvives(ctx, func() {
					previous := s.vm.restartCount(ctx)
					Expect(s.powerCut(ctx)).To(Succeed())
					s.waitForRestart(ctx, s.vm.cid, previous)
					s.vm.waitForAgent(ctx)
				})
			}, NodeTimeout(longTest))

			if onVMNode {
				It("survive an orderly reboot of their node", func(ctx context.Context) {
					s.expectSurvives(ctx, func() {
						previous := s.vm.restartCount(ctx)
						Expect(s.embedded.VM.Reboot(ctx)).To(Succeed())
						s.waitForRestart(ctx, s.vm.cid, previous)
						s.vm.waitForAgent(ctx)
					})
				}, NodeTimeout(longTest))
			}

			It("survive resize_disk", func(ctx context.Context) {
				s.expectSurvives(ctx, func() {
					s.withJobsStopped(ctx, func() {
						s.vm.detach(ctx, s.disk)
						s.mustCall(ctx, "resize_disk", s.disk, workloadsDiskMiB+64)
						s.vm.attach(ctx, s.disk)
					})
				})
				Expect(s.vm.diskSizeMiB(ctx, s.disk)).To(Equal(workloadsDiskMiB + 64))
			}, NodeTimeout(longTest))

			It("survive the migration to another disk", func(ctx context.Context) {
				next := s.createDisk(ctx, workloadsDiskMiB+128, blockDisk)
				s.expectSurvives(ctx, func() {
					s.withJobsStopped(ctx, func() {
						s.vm.attach(ctx, next)
						s.vm.callAgent(ctx, "migrate_disk", s.disk, next)
						s.vm.callAgent(ctx, "remove_persistent_disk", s.disk)
						s.mustCall(ctx, "detach_disk", s.vm.cid, s.disk)
					})
				})
				s.mustCall(ctx, "delete_disk", s.disk)
				s.disk = next
			}, NodeTimeout(longTest))

			It("survive a drain of its node, after which the VM is made again", func(ctx context.Context) {
				s.expectSurvives(ctx, func() {
					s.drainNode(ctx)
					_, err := s.Call(ctx, "delete_vm", s.vm.cid)
					Expect(err).NotTo(HaveOccurred())
					s.vm = s.createWorkloadVM(ctx)
					s.vm.attach(ctx, s.disk)
					s.installJobs(ctx)
				})
			}, NodeTimeout(longTest))
		})
	}
})

// drainNode drains the node of this machine and of what is attached to it.
func (s *workloads) drainNode(ctx context.Context) {
	GinkgoHelper()
	node, kubectl := s.vm.pod(ctx).Spec.NodeName, s.embedded.ControlPlane.Kubectl
	_, err := kubectl(ctx, "drain", node, "--force", "--delete-emptydir-data", "--ignore-daemonsets",
		"--pod-selector", "bosh.cloudfoundry.org/vm="+s.vm.cid, "--timeout", "2m")
	Expect(err).NotTo(HaveOccurred())
	_, err = kubectl(ctx, "uncordon", node)
	Expect(err).NotTo(HaveOccurred())
}
