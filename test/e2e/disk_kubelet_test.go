//go:build e2e

package e2e

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// survivesTheKubelet are the scenarios in which the kubelet restarts, or restarts the machine's container.
func survivesTheKubelet(s *subject) {
	restartKubelet := func(ctx context.Context) {
		GinkgoHelper()
		Expect(s.node.RestartKubelet(ctx)).To(Succeed())
		// It is healthy before it has heard of its Pods.
		Eventually(func() error { _, err := s.m.try(ctx, "true"); return err }).WithContext(ctx).Should(Succeed())
	}
	// once restarts the kubelet as soon as the attachment is as told.
	once := func(ctx context.Context, is func(*corev1.Pod) bool) {
		GinkgoHelper()
		Eventually(func() bool {
			pod, err := s.cluster.CoreV1().Pods(s.namespace).Get(ctx, s.disk+"-attachment", metav1.GetOptions{})
			return err == nil && is(pod)
		}).WithContext(ctx).WithPolling(time.Millisecond).Should(BeTrue())
		restartKubelet(ctx)
	}

	It("stays when the kubelet restarts", func(ctx context.Context) {
		before := s.m.identity(ctx)
		restartKubelet(ctx)
		Expect(s.m.identity(ctx)).To(Equal(before))
		s.intact(ctx)
	}, NodeTimeout(longTest))

	It("comes when the kubelet restarts while it is being attached", func(ctx context.Context) {
		before := s.m.identity(ctx)
		s.m.detach(ctx, s.disk)
		atOnce(func() { s.must(ctx, "attach_disk", s.m.cid, s.disk) }, func() { once(ctx, func(*corev1.Pod) bool { return true }) })
		s.m.attach(ctx, s.disk)
		Expect(s.m.identity(ctx)).To(Equal(before))
		s.intact(ctx)
	}, NodeTimeout(longTest))

	It("goes when the kubelet restarts while it is being detached", func(ctx context.Context) {
		before, disk := s.m.identity(ctx), s.disk
		s.m.tell(ctx, "unmount_disk", disk)
		s.m.tell(ctx, "remove_persistent_disk", disk)
		atOnce(func() { s.must(ctx, "detach_disk", s.m.cid, disk) }, func() {
			once(ctx, func(attachment *corev1.Pod) bool { return len(attachment.Spec.EphemeralContainers) > 0 })
		})
		s.m.attach(ctx, disk)
		Expect(s.m.identity(ctx)).To(Equal(before))
		s.intact(ctx)
	}, NodeTimeout(longTest))

	It("is mounted again before anything else when the machine's container restarts", func(ctx context.Context) {
		count := s.m.pod(ctx).Status.ContainerStatuses[0].RestartCount
		_, err := s.node.Shell(ctx, "kill -9 "+s.m.init(ctx))
		Expect(err).NotTo(HaveOccurred())
		s.restarted(ctx, s.m.cid, count)
		s.m.awaitAgent(ctx)
		s.intact(ctx)
	}, NodeTimeout(longTest))
}
