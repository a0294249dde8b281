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

	"bosh-kubernetes-cpi/test/harness/embedded"
)

// workloadsScript installs three jobs: a counter in a container like BPM's, PostgreSQL, and a layer store like Garden's.
//
//go:embed testdata/workloads
var workloadsScript string

// workloads are the three jobs in a VM with a persistent disk. Specs share them.
type workloads struct {
	*testEnv
	stemcell string // environment variable with the path of its tarball
	vm       *testVM
	disk     string
}

// workloadsDiskMiB is the initial size of the disk, in MiB.
const workloadsDiskMiB = 320

// createWorkloadVM creates a VM with enough memory for the jobs.
func (w *workloads) createWorkloadVM(ctx context.Context) *testVM {
	GinkgoHelper()
	return w.createVMFromStemcell(ctx, os.Getenv(w.stemcell), map[string]any{"memory": 1024})
}

// setUp creates the VM with a disk that can be resized, and installs the jobs.
func (w *workloads) setUp(ctx context.Context) {
	GinkgoHelper()
	w.vm = w.createWorkloadVM(ctx)
	w.disk = w.createDisk(ctx, workloadsDiskMiB, map[string]any{"storage_class": embedded.CSIClass})
	w.vm.attach(ctx, w.disk)
	w.installJobs(ctx)
	w.vm.run(ctx, "echo kept >/var/vcap/data/layers/store/mark")
}

// installJobs installs the jobs, like an update in a new VM, and waits until they work.
func (w *workloads) installJobs(ctx context.Context) {
	GinkgoHelper()
	path, err := exec.LookPath("runc")
	Expect(err).NotTo(HaveOccurred())
	for file, command := range map[string]string{
		path:                      "cat >/usr/local/bin/runc && chmod 0755 /usr/local/bin/runc",
		os.Getenv("E2E_POSTGRES"): "mkdir -p /var/vcap/packages/postgres && tar -xzC /var/vcap/packages/postgres",
	} {
		content, err := os.ReadFile(file)
		Expect(err).NotTo(HaveOccurred())
		w.vm.runWithInput(ctx, string(content), command)
	}
	w.vm.runWithInput(ctx, workloadsScript, "bash")
	w.waitForJobs(ctx)
}

// waitForJobs waits until all three jobs work, without intervention.
func (w *workloads) waitForJobs(ctx context.Context) {
	GinkgoHelper()
	describeState := func() string {
		output, _ := w.vm.tryRun(ctx, "/var/vcap/bosh/bin/monit summary; tail -n 5 /var/vcap/sys/run/*/log /var/vcap/data/counter/log")
		return output + w.vm.logs(ctx)
	}
	for _, job := range []string{"kill -0 $(cat /var/vcap/sys/run/counter/counter.pid) && test -e /var/vcap/store/counter/count",
		"/var/vcap/jobs/postgres/bin/rows || /var/vcap/jobs/postgres/bin/commit | grep -m 1 .",
		"kill -0 $(cat /var/vcap/sys/run/layers/layers.pid)"} {
		Eventually(func() error { _, err := w.vm.tryRun(ctx, job); return err }, 4*time.Minute).WithContext(ctx).WithPolling(time.Second).Should(Succeed(), describeState)
	}
}

// counterValue returns the value of the counter.
func (w *workloads) counterValue(ctx context.Context) int {
	GinkgoHelper()
	count, err := strconv.Atoi(w.vm.run(ctx, "cat /var/vcap/store/counter/count"))
	Expect(err).NotTo(HaveOccurred())
	return count
}

// startCommits commits rows until stop is called. stop returns the last row reported as committed.
func (w *workloads) startCommits(ctx context.Context) (stop func() int64) {
	GinkgoHelper()
	client := exec.CommandContext(ctx, "kubectl", "--kubeconfig", w.kubeconfig, "exec", "-n", w.namespace, w.vm.cid, "--",
		"/var/vcap/jobs/postgres/bin/commit")
	output, err := client.StdoutPipe()
	Expect(err).NotTo(HaveOccurred())
	Expect(client.Start()).To(Succeed())
	var lastRow atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			if row, err := strconv.ParseInt(lines.Text(), 10, 64); err == nil {
				lastRow.Store(row)
			}
		}
	}()
	Eventually(lastRow.Load).WithContext(ctx).ShouldNot(BeZero())
	return func() int64 {
		_ = client.Process.Kill()
		<-done
		_ = client.Wait()
		return lastRow.Load()
	}
}

// expectSurvives runs the action while the jobs work, and expects them to recover without intervention and without data loss: the
// counter does not decrease, every committed row exists, and the layer store has its content unless the action replaced the VM. The
// quota must also apply in a new layer store.
func (w *workloads) expectSurvives(ctx context.Context, action func()) {
	GinkgoHelper()
	stop, vmCID, previousCount := w.startCommits(ctx), w.vm.cid, w.counterValue(ctx)
	action()
	committed := stop()
	w.waitForJobs(ctx)
	Expect(w.counterValue(ctx)).To(BeNumerically(">=", previousCount))
	Eventually(func() int { return w.counterValue(ctx) }).WithContext(ctx).Should(BeNumerically(">", previousCount))
	fields := strings.Fields(w.vm.run(ctx, "/var/vcap/jobs/postgres/bin/rows"))
	Expect(fields[0]).To(Equal(fields[4]), "all rows up to the last exist")
	Expect(strconv.ParseInt(fields[0], 10, 64)).To(BeNumerically(">=", committed))
	mark := "gone"
	if w.vm.cid == vmCID {
		mark = "kept"
	}
	Expect(w.vm.run(ctx, "cat /var/vcap/data/layers/store/mark 2>/dev/null || echo gone")).To(Equal(mark))
	quota := Or(Equal("xfs\n5242880"), Equal("xfs\nthe kernel has none"))
	if onVMNode {
		quota = Equal("xfs\n5242880")
	}
	Expect(w.vm.run(ctx, "findmnt --noheadings --output FSTYPE /var/vcap/data/layers/store; /var/vcap/jobs/layers/bin/fill")).To(quota)
}

// withJobsStopped runs the action while the jobs are stopped, like the director.
func (w *workloads) withJobsStopped(ctx context.Context, action func()) {
	GinkgoHelper()
	w.vm.callAgent(ctx, "stop")
	action()
	w.vm.callAgent(ctx, "start")
}

var _ = Describe("A database, a container and a layer store", Label("vms", "extended"), Serial, func() {
	for kind, stemcell := range map[string]string{"runit": "E2E_STEMCELL", "systemd": withSystemd} {
		Describe("in a VM with "+kind, Ordered, func() {
			w := &workloads{stemcell: stemcell}
			BeforeAll(func(ctx context.Context) {
				w.testEnv = newTestEnv(ctx)
				w.setUp(ctx)
				w.vm.run(ctx, "sync") // a power cut loses unwritten data, here the jobs' files
			}, NodeTimeout(longTest))

			It("survive when PID 1 is killed", func(ctx context.Context) {
				w.expectSurvives(ctx, func() { w.vm.killInit(ctx); w.vm.waitForAgent(ctx) })
			}, NodeTimeout(longTest))

			It("survive reboot_vm", func(ctx context.Context) {
				w.expectSurvives(ctx, func() { w.mustCall(ctx, "reboot_vm", w.vm.cid); w.vm.waitForAgent(ctx) })
			}, NodeTimeout(longTest))

			It("survive a power cut of the node", func(ctx context.Context) {
				w.expectSurvives(ctx, func() {
					previous := w.vm.restartCount(ctx)
					Expect(w.powerCut(ctx)).To(Succeed())
					w.waitForRestart(ctx, w.vm.cid, previous)
					w.vm.waitForAgent(ctx)
				})
			}, NodeTimeout(longTest))

			if onVMNode {
				It("survive an orderly reboot of the node", func(ctx context.Context) {
					w.expectSurvives(ctx, func() {
						previous := w.vm.restartCount(ctx)
						Expect(w.embedded.VM.Reboot(ctx)).To(Succeed())
						w.waitForRestart(ctx, w.vm.cid, previous)
						w.vm.waitForAgent(ctx)
					})
				}, NodeTimeout(longTest))
			}

			It("survive resize_disk", func(ctx context.Context) {
				w.expectSurvives(ctx, func() {
					w.withJobsStopped(ctx, func() {
						w.vm.detach(ctx, w.disk)
						w.mustCall(ctx, "resize_disk", w.disk, workloadsDiskMiB+64)
						w.vm.attach(ctx, w.disk)
					})
				})
				Expect(w.vm.diskSizeMiB(ctx, w.disk)).To(Equal(workloadsDiskMiB + 64))
			}, NodeTimeout(longTest))

			It("survive the migration to another disk", func(ctx context.Context) {
				next := w.createDisk(ctx, workloadsDiskMiB+128, blockDisk)
				w.expectSurvives(ctx, func() {
					w.withJobsStopped(ctx, func() {
						w.vm.attach(ctx, next)
						w.vm.callAgent(ctx, "migrate_disk", w.disk, next)
						w.vm.callAgent(ctx, "remove_persistent_disk", w.disk)
						w.mustCall(ctx, "detach_disk", w.vm.cid, w.disk)
					})
				})
				w.mustCall(ctx, "delete_disk", w.disk)
				w.disk = next
			}, NodeTimeout(longTest))

			It("survive a drain of the node, after which the VM is recreated", func(ctx context.Context) {
				w.expectSurvives(ctx, func() {
					w.drainNode(ctx)
					_, err := w.Call(ctx, "delete_vm", w.vm.cid)
					Expect(err).NotTo(HaveOccurred())
					w.vm = w.createWorkloadVM(ctx)
					w.vm.attach(ctx, w.disk)
					w.installJobs(ctx)
				})
			}, NodeTimeout(longTest))
		})
	}
})

// drainNode evicts the VM and its attachment Pods from their node.
func (w *workloads) drainNode(ctx context.Context) {
	GinkgoHelper()
	node, kubectl := w.vm.pod(ctx).Spec.NodeName, w.embedded.ControlPlane.Kubectl
	_, err := kubectl(ctx, "drain", node, "--force", "--delete-emptydir-data", "--ignore-daemonsets",
		"--pod-selector", "bosh.cloudfoundry.org/vm="+w.vm.cid, "--timeout", "2m")
	Expect(err).NotTo(HaveOccurred())
	_, err = kubectl(ctx, "uncordon", node)
	Expect(err).NotTo(HaveOccurred())
}
