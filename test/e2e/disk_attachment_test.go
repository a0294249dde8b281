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

// holding returns the process ids of the attachment's containers that hold this disk.
func (w *world) holding(ctx context.Context, disk string) []string {
	GinkgoHelper()
	out, err := w.node.Shell(ctx, `for p in /proc/[0-9]*; do
		tr '\0' '\n' <"$p/environ" 2>/dev/null | grep -qx "DISK=`+disk+`" && tr '\0' '\n' <"$p/cmdline" | tail -n 1 | grep -qx 'hold.*' && echo "${p#/proc/}"; done; true`)
	Expect(err).NotTo(HaveOccurred())
	return strings.Fields(out)
}

// init returns the process id of the machine's PID 1 on the node.
func (m *machine) init(ctx context.Context) string {
	GinkgoHelper()
	out, err := m.w.node.Shell(ctx, `for p in /proc/[0-9]*; do
		grep -qs "/`+m.w.namespace+`/`+m.cid+` /dev/bosh " "$p/mountinfo" && [[ $(awk '/^NSpid:/ { print $NF }' "$p/status") == 1 ]] && echo "${p#/proc/}"; done; true`)
	Expect(err).NotTo(HaveOccurred())
	Expect(strings.Fields(out)).To(HaveLen(1))
	return strings.TrimSpace(out)
}

// restarted waits until the Pod's containers have restarted more than before times and are ready.
func (w *world) restarted(ctx context.Context, pod string, before int32) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		found, err := w.cluster.CoreV1().Pods(w.namespace).Get(ctx, pod, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(found.Status.ContainerStatuses).To(HaveEach(And(HaveField("RestartCount", BeNumerically(">", before)), HaveField("Ready", BeTrue()))))
	}).WithContext(ctx).Should(Succeed())
}

// restarts of the attachment's container, one after the other.
const restarts = 20

// survivesItsAttachment are the scenarios in which something happens to the attachment.
func survivesItsAttachment(s *subject) {
	It(fmt.Sprintf("stays when its attachment's process is killed, %d times, and nothing stacks", restarts), func(ctx context.Context) {
		before, loops, mounts := s.m.identity(ctx), s.devices(ctx), s.mounts(ctx)
		// As the container of a job, which has the disk, but not the machine's folder of devices.
		s.m.run(ctx, `setsid unshare --mount bash -c 'umount /dev/bosh && exec -a nested sleep infinity' </dev/null >/dev/null 2>&1 &`)
		Eventually(func() error { _, err := s.m.try(ctx, "pgrep -f nested.infinity"); return err }).WithContext(ctx).Should(Succeed())
		for range restarts {
			count := s.attachment(ctx, s.disk).Status.ContainerStatuses[0].RestartCount
			s.killHolder(ctx, s.disk)
			s.restarted(ctx, s.disk+"-attachment", count)
			Expect(s.m.run(ctx, "cat /var/vcap/store/mark")).To(Equal(s.disk))
		}
		s.m.run(ctx, "pkill -f nested.infinity")
		Expect(s.devices(ctx)).To(ConsistOf(loops), "loop devices stack")
		Expect(s.mounts(ctx)).To(Equal(mounts), "mounts stack")
		Expect(s.m.identity(ctx)).To(Equal(before))
		s.intact(ctx)
	}, Label("extended"), NodeTimeout(longTest))

	It("stays when its attachment is evicted, until it is free", func(ctx context.Context) {
		before := s.m.identity(ctx)
		Expect(s.cluster.PolicyV1().Evictions(s.namespace).Evict(ctx, &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Name: s.disk + "-attachment", Namespace: s.namespace},
		})).To(Succeed())
		s.m.run(ctx, "touch /var/vcap/store/more && sync")
		Expect(s.attachment(ctx, s.disk).DeletionTimestamp).NotTo(BeNil())
		Expect(s.m.identity(ctx)).To(Equal(before))
		s.intact(ctx)
		Expect(s.attachment(ctx, s.disk).DeletionTimestamp).To(BeNil())
	}, NodeTimeout(longTest))
}
