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
func describeKubeletRestarts(f *diskFixture) {
	// restartKubeletWhen restarts the kubelet as soon as the attachment Pod meets the condition.
	restartKubeletWhen := func(ctx context.Context, condition func(*corev1.Pod) bool) {
		GinkgoHelper()
		Eventually(func() bool {
			pod, err := f.cluster.CoreV1().Pods(f.namespace).Get(ctx, f.disk+"-attachment", metav1.GetOptions{})
			return err == nil && condition(pod)
		}).WithContext(ctx).WithPolling(time.Millisecond).Should(BeTrue())
		f.restartKubelet(ctx)
	}

	It("stays mounted when the kubelet restarts", func(ctx context.Context) {
		previous := f.vm.identity(ctx)
		f.restartKubelet(ctx)
		Expect(f.vm.identity(ctx)).To(Equal(previous))
		f.expectIntact(ctx)
	}, NodeTimeout(longTest))

	It("is attached when the kubelet restarts during attach_disk", func(ctx context.Context) {
		previous := f.vm.identity(ctx)
		f.vm.detach(ctx, f.disk)
		runConcurrently(func() { f.mustCall(ctx, "attach_disk", f.vm.cid, f.disk) }, func() { restartKubeletWhen(ctx, func(*corev1.Pod) bool { return true }) })
		f.vm.attach(ctx, f.disk)
		Expect(f.vm.identity(ctx)).To(Equal(previous))
		f.expectIntact(ctx)
	}, NodeTimeout(longTest))

	It("is detached when the kubelet restarts during detach_disk", func(ctx context.Context) {
		previous, disk := f.vm.identity(ctx), f.disk
		f.vm.callAgent(ctx, "unmount_disk", disk)
		f.vm.callAgent(ctx, "remove_persistent_disk", disk)
		runConcurrently(func() { f.mustCall(ctx, "detach_disk", f.vm.cid, disk) }, func() {
			restartKubeletWhen(ctx, func(attachment *corev1.Pod) bool { return len(attachment.Spec.EphemeralContainers) > 0 })
		})
		f.vm.attach(ctx, disk)
		Expect(f.vm.identity(ctx)).To(Equal(previous))
		f.expectIntact(ctx)
	}, NodeTimeout(longTest))

	It("is mounted again when the VM's container restarts", func(ctx context.Context) {
		count := f.vm.pod(ctx).Status.ContainerStatuses[0].RestartCount
		_, err := f.node.Shell(ctx, "kill -9 "+f.vm.initPID(ctx))
		Expect(err).NotTo(HaveOccurred())
		f.waitForRestart(ctx, f.vm.cid, count)
		f.vm.waitForAgent(ctx)
		f.expectIntact(ctx)
	}, NodeTimeout(longTest))
}

// describeUnpublishedAttachments specifies what happens when the kubelet restarts before an attachment published its disk. For a moment, the
// kubelet may report that it did.
func describeUnpublishedAttachments(f *diskFixture) {
	It("is attached in the end when the kubelet restarts before the first attachment published it", func(ctx context.Context) {
		f.vm.detach(ctx, f.disk)
		disk := f.createDisk(ctx, largeDisk, nil)
		program := "bosh-node disk attach --cid " + disk
		attached := make(chan struct{})
		go func() {
			defer GinkgoRecover()
			defer close(attached)
			f.mustCall(ctx, "attach_disk", f.vm.cid, disk)
		}()
		f.stopWithVolume(ctx, program)
		DeferCleanup(func(ctx context.Context) { _, _ = f.node.Shell(ctx, "pkill -CONT -f '"+program+"'") })
		published := f.vm.run(ctx, "ls /dev/bosh/"+disk+" 2>/dev/null || true") != "" // it was faster
		f.restartKubelet(ctx)
		Eventually(func(g Gomega) {
			pod, err := f.cluster.CoreV1().Pods(f.namespace).Get(ctx, disk+"-attachment", metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(pod.Status.ContainerStatuses).To(HaveExactElements(HaveField("State.Running", Not(BeNil()))))
			g.Expect(published || !pod.Status.ContainerStatuses[0].Ready).To(BeTrue())
		}).WithContext(ctx).Should(Succeed())
		_, err := f.node.Shell(ctx, "pkill -CONT -f '"+program+"'")
		Expect(err).NotTo(HaveOccurred())
		Eventually(attached).WithContext(ctx).Should(BeClosed())
		f.vm.attach(ctx, disk)
	}, NodeTimeout(longTest))
}

// stopWithVolume stops the program of an attachment, without ending it, once it has the volume or an image file open.
func (f *diskFixture) stopWithVolume(ctx context.Context, program string) {
	GinkgoHelper()
	pattern := "[" + program[:1] + "]" + program[1:] // which this command does not match itself
	_, err := f.node.Shell(ctx, "until pid=$(pgrep -f '"+pattern+"') && readlink /proc/$pid/fd/* | grep -Eq '/(volume|disk.img.new)$' && "+
		"kill -STOP $pid; do :; done")
	Expect(err).NotTo(HaveOccurred())
}

// restartKubelet restarts the kubelet, and waits until it knows its Pods: it reports that it is healthy before.
func (f *diskFixture) restartKubelet(ctx context.Context) {
	GinkgoHelper()
	Expect(f.node.RestartKubelet(ctx)).To(Succeed())
	Eventually(func() error { _, err := f.vm.tryRun(ctx, "true"); return err }).WithContext(ctx).Should(Succeed())
}
