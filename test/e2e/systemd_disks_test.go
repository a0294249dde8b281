//go:build e2e

package e2e

import (
	"context"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Containers from such an image are told to end by another signal than others.
var _ = Describe("A persistent disk of a machine with systemd", Label("disks"), Serial, func() {
	It("stays when its attachment is deleted by someone else until it is free, and leaves nothing behind", func(ctx context.Context) {
		w := newWorld(ctx)
		m := w.createMachineFrom(ctx, os.Getenv("E2E_STEMCELL_SYSTEMD"), map[string]any{})
		disk := w.createDisk(ctx, 64, onFilesystem)
		m.attach(ctx, disk)
		checksum := m.run(ctx, fillDisk)
		loops := w.loopLines(ctx)
		Expect(loops).To(HaveLen(1))
		Expect(w.cluster.CoreV1().Pods(w.namespace).Delete(ctx, disk+"-attachment", metav1.DeleteOptions{})).To(Succeed())
		Expect(m.run(ctx, checkDisk)).To(Equal(checksum))
		Expect(w.attachment(ctx, disk).DeletionTimestamp).NotTo(BeNil())
		m.detach(ctx, disk)
		Expect(m.run(ctx, "ls -A /dev/bosh")).To(BeEmpty())
		Expect(w.loops(ctx)).NotTo(ContainSubstring(loops[0]))
		w.must(ctx, "delete_disk", disk)
	}, NodeTimeout(longTest))
})
