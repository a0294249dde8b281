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

// workloadsScript installs three jobs: a counter in a container like BPM's, PostgreSQL, and a layer store like Garden's.
//
//go:embed testdata/workloads
var workloadsScript string

// workloads are these jobs in a VM with a persistent disk, which specs share.
type workloads struct {
	*testEnv
	stemcell string // environment variable with the path of its tarball
	vm       *testVM
	disk     string
}

// workloadsDiskMiB is the initial size of the disk, in MiB.
const workloadsDiskMiB = 320

// createWorkloadVM creates a VM for the jobs.
func (s *workloads) createWorkloadVM(ctx context.Context) *testVM {
	GinkgoHelper()
	return s.createVMFromStemcell(ctx, os.Getenv(s.stemcell), map[string]any{"memory": 1024})
}

// setUp creates the VM with a disk that can be resized, and installs the jobs.
func (s *workloads) setUp(ctx context.Context) {
	GinkgoHelper()
	s.vm = s.createWorkloadVM(ctx)
	s.disk = s.createDisk(ctx, workloadsDiskMiB, map[string]any{"storage_class": embedded.CSIClass})
	s.vm.attach(ctx, s.disk)
	s.installJobs(ctx)
	s.vm.run(ctx, "echo kept >/var/vcap/data/layers/store/mark")
}

// installJobs installs the jobs, as an update does in a new VM, and waits until they work.
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

// waitForJobs waits until all three jobs work, without intervention.
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

// counterValue returns the value of the counter.
func (s *workloads) counterValue(ctx context.Context) int {
	GinkgoHelper()
	count, err := strconv.Atoi(s.vm.run(ctx, "cat /var/vcap/store/counter/count"))
	Expect(err).NotTo(HaveOccurred())
	return count
}

// startCommits commits rows until stop is called, which returns the last row that was reported as committed.
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

// expectSurvives runs the action while the jobs work, and expects them to recover without intervention and without data loss: the
// counter has not decreased, every committed row exists, and the layer store has its content if the action has not replaced the VM.
// The quota also applies in a new layer store.
func (s *workloads) expectSurvives(ctx context.Context, action func()) {
	GinkgoHelper()
	stop, vmCID, previousCount := s.startCommits(ctx), s.vm.cid, s.counterValue(ctx)
	action()
	committed := stop()
	s.waitForJobs(ctx)
	Expect(s.counterValue(ctx)).To(BeNumerically(">=", previousCount))
	Eventually(func() int { return s.counterValue(ctx) }).WithContext(ctx).Should(BeNumerically(">", previousCount))
	fields := strings.Fields(s.vm.run(ctx, "/var/vcap/jobs/postgres/bin/rows"))
	Expect(fields[0]).To(Equal(fields[4]), "no row up to the last is missing")
	Expect(strconv.ParseInt(fields[0], 10, 64)).To(BeNumerically(">=", committed))
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

// withJobsStopped runs the action while the jobs are stopped, as the director does.
func (s *workloads) withJobsStopped(ctx context.Context, action func()) {
	GinkgoHelper()
	s.vm.callAgent(ctx, "stop")
	action()
	s.vm.callAgent(ctx, "start")
}

var _ = Describe("A database, a container and a layer store", Label("vms", "extended"), Serial, func() {
	for kind, stemcell := range map[string]string{"runit": "E2E_STEMCELL", "systemd": withSystemd} {
		Describe("in a VM with "+kind, Ordered, func() {
			s := &workloads{stemcell: stemcell}
			BeforeAll(func(ctx context.Context) {
				s.testEnv = newTestEnv(ctx)
				s.setUp(ctx)
				s.vm.run(ctx, "sync") // a power cut loses unwritten data, here the jobs' files
			}, NodeTimeout(longTest))

			It("survive when PID 1 is killed", func(ctx context.Context) {
				s.expectSurvives(ctx, func() { s.vm.killInit(ctx); s.vm.waitForAgent(ctx) })
			}, NodeTimeout(longTest))

			It("survive reboot_vm", func(ctx context.Context) {
				s.expectSurvives(ctx, func() { s.mustCall(ctx, "reboot_vm", s.vm.cid); s.vm.waitForAgent(ctx) })
			}, NodeTimeout(longTest))

			It("survive a power cut of the node", func(ctx context.Context) {
				s.expectSurvives(ctx, func() {
					previous := s.vm.restartCount(ctx)
					Expect(s.powerCut(ctx)).To(Succeed())
					s.waitForRestart(ctx, s.vm.cid, previous)
					s.vm.waitForAgent(ctx)
				})
			}, NodeTimeout(longTest))

			if onVMNode {
				It("survive an orderly reboot of the node", func(ctx context.Context) {
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

			It("survive a drain of the node, after which the VM is recreated", func(ctx context.Context) {
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

// drainNode evicts the VM and its attachment Pods from their node.
func (s *workloads) drainNode(ctx context.Context) {
	GinkgoHelper()
	node, kubectl := s.vm.pod(ctx).Spec.NodeName, s.embedded.ControlPlane.Kubectl
	_, err := kubectl(ctx, "drain", node, "--force", "--delete-emptydir-data", "--ignore-daemonsets",
		"--pod-selector", "bosh.cloudfoundry.org/vm="+s.vm.cid, "--timeout", "2m")
	Expect(err).NotTo(HaveOccurred())
	_, err = kubectl(ctx, "uncordon", node)
	Expect(err).NotTo(HaveOccurred())
}
