//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// attachmentPIDs returns the process IDs of the attachment Pod's main program on the node.
func (env *testEnv) attachmentPIDs(ctx context.Context, disk string) []string {
	GinkgoHelper()
	out, err := env.node.Shell(ctx, `for p in /proc/[0-9]*; do
		tr '\0' ' ' <"$p/cmdline" 2>/dev/null | grep -q '^/bosh/bin/bosh-node disk attach --cid `+disk+` ' && echo "${p#/proc/}"; done; true`)
	Expect(err).NotTo(HaveOccurred())
	return strings.Fields(out)
}

// initPID returns the process ID of the VM's PID 1 on the node.
func (vm *testVM) initPID(ctx context.Context) string {
	GinkgoHelper()
	out, err := vm.env.node.Shell(ctx, `for p in /proc/[0-9]*; do
		grep -qs "/`+vm.env.namespace+`/`+vm.cid+` /dev/bosh " "$p/mountinfo" && [[ $(awk '/^NSpid:/ { print $NF }' "$p/status") == 1 ]] && echo "${p#/proc/}"; done; true`)
	Expect(err).NotTo(HaveOccurred())
	Expect(strings.Fields(out)).To(HaveLen(1))
	return strings.TrimSpace(out)
}

// killAttachmentProcess kills the main program of the attachment Pod.
func (env *testEnv) killAttachmentProcess(ctx context.Context, disk string) {
	GinkgoHelper()
	for _, pid := range env.attachmentPIDs(ctx, disk) {
		_, err := env.node.Shell(ctx, "kill -9 "+pid)
		Expect(err).NotTo(HaveOccurred())
	}
}

// waitForRestart waits until the Pod's containers have a restart count above previous and are ready.
func (env *testEnv) waitForRestart(ctx context.Context, pod string, previous int32) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		current, err := env.cluster.CoreV1().Pods(env.namespace).Get(ctx, pod, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(current.Status.ContainerStatuses).To(HaveEach(And(HaveField("RestartCount", BeNumerically(">", previous)), HaveField("Ready", BeTrue()))))
	}).WithContext(ctx).Should(Succeed())
}

// attachmentPodKills is how many times a spec kills the process of an attachment Pod.
const attachmentPodKills = 20

// describeAttachmentPodFailures specifies what happens to a disk when its attachment Pod fails.
func describeAttachmentPodFailures(f *diskFixture) {
	It(fmt.Sprintf("stays mounted when the process of its attachment Pod is killed %d times, without additional mounts or loop devices", attachmentPodKills), func(ctx context.Context) {
		previous, loops, mounts := f.vm.identity(ctx), f.volumeLoopDevices(ctx), f.kubeletMounts(ctx)
		// Like a job's container, this process sees the disk, but not the VM's device directory.
		f.vm.run(ctx, `setsid unshare --mount bash -c 'umount /dev/bosh && exec -a nested sleep infinity' </dev/null >/dev/null 2>&1 &`)
		Eventually(func() error { _, err := f.vm.tryRun(ctx, "pgrep -f nested.infinity"); return err }).WithContext(ctx).Should(Succeed())
		for range attachmentPodKills {
			count := f.attachmentPod(ctx, f.disk).Status.ContainerStatuses[0].RestartCount
			f.killAttachmentProcess(ctx, f.disk)
			f.waitForRestart(ctx, f.disk+"-attachment", count)
			Expect(f.vm.run(ctx, "cat /var/vcap/store/mark")).To(Equal(f.disk))
		}
		f.vm.run(ctx, "pkill -f nested.infinity")
		Expect(f.volumeLoopDevices(ctx)).To(ConsistOf(loops), "loop devices accumulate")
		Expect(f.kubeletMounts(ctx)).To(Equal(mounts), "mounts accumulate")
		Expect(f.vm.identity(ctx)).To(Equal(previous))
		f.expectIntact(ctx)
	}, Label("extended"), NodeTimeout(longTest))

	It("stays mounted until detach_disk when its attachment Pod is evicted", func(ctx context.Context) {
		previous := f.vm.identity(ctx)
		Expect(f.cluster.PolicyV1().Evictions(f.namespace).Evict(ctx, &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Name: f.disk + "-attachment", Namespace: f.namespace},
		})).To(Succeed())
		f.vm.run(ctx, "touch /var/vcap/store/more && sync")
		Expect(f.attachmentPod(ctx, f.disk).DeletionTimestamp).NotTo(BeNil())
		Expect(f.vm.identity(ctx)).To(Equal(previous))
		f.expectIntact(ctx)
		Expect(f.attachmentPod(ctx, f.disk).DeletionTimestamp).To(BeNil())
	}, NodeTimeout(longTest))
}
