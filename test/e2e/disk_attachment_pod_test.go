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

// attachmentPIDs returns the process ids of the attachment's containers that hold this disk.
func (env *testEnv) attachmentPIDs(ctx context.Context, disk string) []string {
	GinkgoHelper()
	out, err := env.node.Shell(ctx, `for p in /proc/[0-9]*; do
		tr '\0' '\n' <"$p/environ" 2>/dev/null | grep -qx "DISK=`+disk+`" && tr '\0' '\n' <"$p/cmdline" | tail -n 1 | grep -qx 'hold.*' && echo "${p#/proc/}"; done; true`)
	Expect(err).NotTo(HaveOccurred())
	return strings.Fields(out)
}

// initPID returns the process id of the machine's PID 1 on the node.
func (vm *testVM) initPID(ctx context.Context) string {
	GinkgoHelper()
	out, err := vm.env.node.Shell(ctx, `for p in /proc/[0-9]*; do
		grep -qs "/`+vm.env.namespace+`/`+vm.cid+` /dev/bosh " "$p/mountinfo" && [[ $(awk '/^NSpid:/ { print $NF }' "$p/status") == 1 ]] && echo "${p#/proc/}"; done; true`)
	Expect(err).NotTo(HaveOccurred())
	Expect(strings.Fields(out)).To(HaveLen(1))
	return strings.TrimSpace(out)
}

// waitForRestart waits until the Pod's containers have restarted more than before times and are ready.
func (env *testEnv) waitForRestart(ctx context.Context, pod string, previous int32) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		found, err := env.cluster.CoreV1().Pods(env.namespace).Get(ctx, pod, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(found.Status.ContainerStatuses).To(HaveEach(And(HaveField("RestartCount", BeNumerically(">", previous)), HaveField("Ready", BeTrue()))))
	}).WithContext(ctx).Should(Succeed())
}

// attachmentPodKills of the attachment's container, one after the other.
const attachmentPodKills = 20

// describeAttachmentPodFailures are the scenarios in which something happens to the attachment.
func describeAttachmentPodFailures(s *diskFixture) {
	It(fmt.Sprintf("stays when its attachment's process is killed, %d times, and nothing stacks", attachmentPodKills), func(ctx context.Context) {
		previous, loops, mounts := s.vm.identity(ctx), s.volumeLoopDevices(ctx), s.kubeletMounts(ctx)
		// As the container of a job, which has the disk, but not the machine's folder of devices.
		s.vm.run(ctx, `setsid unshare --mount bash -c 'umount /dev/bosh && exec -a nested sleep infinity' </dev/null >/dev/null 2>&1 &`)
		Eventually(func() error { _, err := s.vm.tryRun(ctx, "pgrep -f nested.infinity"); return err }).WithContext(ctx).Should(Succeed())
		for range attachmentPodKills {
			count := s.attachmentPod(ctx, s.disk).Status.ContainerStatuses[0].RestartCount
			s.killAttachmentProcess(ctx, s.disk)
			s.waitForRestart(ctx, s.disk+"-attachment", count)
			Expect(s.vm.run(ctx, "cat /var/vcap/store/mark")).To(Equal(s.disk))
		}
		s.vm.run(ctx, "pkill -f nested.infinity")
		Expect(s.volumeLoopDevices(ctx)).To(ConsistOf(loops), "loop devices stack")
		Expect(s.kubeletMounts(ctx)).To(Equal(mounts), "mounts stack")
		Expect(s.vm.identity(ctx)).To(Equal(previous))
		s.expectIntact(ctx)
	}, Label("extended"), NodeTimeout(longTest))

	It("stays when its attachment is evicted, until it is free", func(ctx context.Context) {
		previous := s.vm.identity(ctx)
		Expect(s.cluster.PolicyV1().Evictions(s.namespace).Evict(ctx, &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Name: s.disk + "-attachment", Namespace: s.namespace},
		})).To(Succeed())
		s.vm.run(ctx, "touch /var/vcap/store/more && sync")
		Expect(s.attachmentPod(ctx, s.disk).DeletionTimestamp).NotTo(BeNil())
		Expect(s.vm.identity(ctx)).To(Equal(previous))
		s.expectIntact(ctx)
		Expect(s.attachmentPod(ctx, s.disk).DeletionTimestamp).To(BeNil())
	}, NodeTimeout(longTest))
}
