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

// describeKubeletRestarts specifies what happens to a disk when the kubelet restarts, or restarts the VM's container.
func describeKubeletRestarts(s *diskFixture) {
	restartKubelet := func(ctx context.Context) {
		GinkgoHelper()
		Expect(s.node.RestartKubelet(ctx)).To(Succeed())
		// The kubelet reports that it is healthy before it knows its Pods.
		Eventually(func() error { _, err := s.vm.tryRun(ctx, "true"); return err }).WithContext(ctx).Should(Succeed())
	}
	// restartKubeletWhen restarts the kubelet as soon as the attachment Pod meets the condition.
	restartKubeletWhen := func(ctx context.Context, condition func(*corev1.Pod) bool) {
		GinkgoHelper()
		Eventually(func() bool {
			pod, err := s.cluster.CoreV1().Pods(s.namespace).Get(ctx, s.disk+"-attachment", metav1.GetOptions{})
			return err == nil && condition(pod)
		}).WithContext(ctx).WithPolling(time.Millisecond).Should(BeTrue())
		restartKubelet(ctx)
	}

	It("stays mounted when the kubelet restarts", func(ctx context.Context) {
		previous := s.vm.identity(ctx)
		restartKubelet(ctx)
		Expect(s.vm.identity(ctx)).To(Equal(previous))
		s.expectIntact(ctx)
	}, NodeTimeout(longTest))

	It("is attached when the kubelet restarts during attach_disk", func(ctx context.Context) {
		previous := s.vm.identity(ctx)
		s.vm.detach(ctx, s.disk)
		runConcurrently(func() { s.mustCall(ctx, "attach_disk", s.vm.cid, s.disk) }, func() { restartKubeletWhen(ctx, func(*corev1.Pod) bool { return true }) })
		s.vm.attach(ctx, s.disk)
		Expect(s.vm.identity(ctx)).To(Equal(previous))
		s.expectIntact(ctx)
	}, NodeTimeout(longTest))

	It("is detached when the kubelet restarts during detach_disk", func(ctx context.Context) {
		previous, disk := s.vm.identity(ctx), s.disk
		s.vm.callAgent(ctx, "unmount_disk", disk)
		s.vm.callAgent(ctx, "remove_persistent_disk", disk)
		runConcurrently(func() { s.mustCall(ctx, "detach_disk", s.vm.cid, disk) }, func() {
			restartKubeletWhen(ctx, func(attachment *corev1.Pod) bool { return len(attachment.Spec.EphemeralContainers) > 0 })
		})
		s.vm.attach(ctx, disk)
		Expect(s.vm.identity(ctx)).To(Equal(previous))
		s.expectIntact(ctx)
	}, NodeTimeout(longTest))

	It("is mounted again when the VM's container restarts", func(ctx context.Context) {
		count := s.vm.pod(ctx).Status.ContainerStatuses[0].RestartCount
		_, err := s.node.Shell(ctx, "kill -9 "+s.vm.initPID(ctx))
		Expect(err).NotTo(HaveOccurred())
		s.waitForRestart(ctx, s.vm.cid, count)
		s.vm.waitForAgent(ctx)
		s.expectIntact(ctx)
	}, NodeTimeout(longTest))
}
