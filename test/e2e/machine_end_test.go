//go:build e2e

package e2e

import (
	"context"
	_ "embed"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// orderly is a job that needs three seconds to end, and then says on its disk that it did.
//
//go:embed testdata/orderly
var orderly string

// endOf returns how the machine's container ended when this was done to the machine.
func (m *machine) endOf(ctx context.Context, deed func()) *corev1.ContainerStateTerminated {
	GinkgoHelper()
	changes, err := m.w.cluster.CoreV1().Pods(m.w.namespace).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + m.cid})
	Expect(err).NotTo(HaveOccurred())
	defer changes.Stop()
	deed()
	var ended *corev1.ContainerStateTerminated
	for change := range changes.ResultChan() {
		pod, ok := change.Object.(*corev1.Pod)
		Expect(ok).To(BeTrue(), "%v", change.Object)
		if terminated := pod.Status.ContainerStatuses[0].State.Terminated; terminated != nil {
			ended = terminated
		}
		if change.Type == watch.Deleted {
			break
		}
	}
	Expect(ended).NotTo(BeNil())
	return ended
}

var _ = Describe("A machine's end", Label("machines"), func() {
	DescribeTable("is a shutdown, which gives jobs the time to end",
		func(ctx context.Context, stemcell string) {
			w := newWorld(ctx)
			m := w.createMachineFrom(ctx, os.Getenv(stemcell), map[string]any{})
			disk := w.createDisk(ctx, 64, map[string]any{})
			m.attach(ctx, disk)
			m.run(ctx, orderly)
			awaitJob := func() {
				GinkgoHelper()
				Eventually(func() (string, error) { return m.try(ctx, "cat /var/vcap/store/words") }).WithContext(ctx).Should(HaveSuffix("began"))
			}
			awaitJob()

			By("reboot_vm")
			w.must(ctx, "reboot_vm", m.cid)
			awaitJob()
			Expect(m.run(ctx, "cat /var/vcap/store/words")).To(Equal("began\nended\nbegan"))

			By("the end of its Pod")
			const killed = 128 + 9 // as after the 30 s that it has
			Expect(m.endOf(ctx, func() { w.must(ctx, "delete_vm", m.cid) }).ExitCode).NotTo(BeEquivalentTo(killed))
			events, err := w.cluster.CoreV1().Events(w.namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + m.cid})
			Expect(err).NotTo(HaveOccurred())
			for _, event := range events.Items {
				Expect(event.Reason).NotTo(Equal("FailedPreStopHook"), event.Message)
			}
			next := w.createMachine(ctx)
			next.attach(ctx, disk)
			Expect(next.run(ctx, "cat /var/vcap/store/words")).To(Equal("began\nended\nbegan\nended"))
		},
		stemcellKinds("extended"))
})
