//go:build e2e

package e2e

import (
	"context"
	_ "embed"
	"os"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// orderly is a job that needs three seconds to end, and then says on its disk that it did.
//
//go:embed testdata/orderly
var orderly string

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
			began := time.Now()
			w.must(ctx, "delete_vm", m.cid)
			Expect(time.Since(began)).To(BeNumerically("<", 25*time.Second), "it was not killed after 30 s")
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
