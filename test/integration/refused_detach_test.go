package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var _ = Describe("A disk whose detach_disk is refused again and again", func() {
	It("can be detached all the same once it is free: proofs do not pile up in its attachment", func(ctx context.Context) {
		w, vm, disk := newWorldWithAttachedDisk(ctx)
		pods := cluster.CoreV1().Pods(w.namespace)
		Expect(w.annotate(ctx, disk+"-attachment", "test/busy", new("process 7 (postgres) has it mounted"))).To(Succeed())
		for range 40 {
			Expect(w.fails(ctx, "detach_disk", vm, disk).Message).To(ContainSubstring("process 7 (postgres) has it mounted"))
		}
		Expect(w.annotate(ctx, disk+"-attachment", "test/stays", new("yes"))).To(Succeed())
		hurried := w
		hurried.Director = w.withTimeouts(map[string]any{"detach_disk": "2s"})
		for range 2 {
			Expect(hurried.fails(ctx, "detach_disk", vm, disk).Message).To(ContainSubstring("was not released"))
		}
		attachment, err := pods.Get(ctx, disk+"-attachment", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(attachment.Spec.EphemeralContainers).To(HaveLen(40))

		Expect(w.annotate(ctx, disk+"-attachment", "test/stays", nil)).To(Succeed())
		w.must(ctx, "detach_disk", vm, disk)
		Expect(w.must(ctx, "get_disks", vm).Result).To(MatchJSON(`[]`))
	})
})
