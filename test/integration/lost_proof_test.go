package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var _ = Describe("A proof that a restart of the kubelet lost", func() {
	var (
		w        world
		vm, disk string
	)
	BeforeEach(func(ctx context.Context) {
		w = newWorld(ctx)
		vm, disk = w.createVM(ctx, "one"), w.createDisk(ctx)
		w.must(ctx, "attach_disk", vm, disk)
		_, err := cluster.CoreV1().Pods(w.namespace).Patch(ctx, disk+"-attachment", types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"test/unstarted":"release-1"}}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
	})

	It("is brought again by the detach_disk that waits for it", func(ctx context.Context) {
		w.Director = withTimeouts(w, map[string]any{"detach_disk": "30s"})
		w.must(ctx, "detach_disk", vm, disk)
		Expect(w.must(ctx, "get_disks", vm).Result).To(MatchJSON(`[]`))
	})

	It("does not keep an attach_disk waiting, nor the next detach_disk", func(ctx context.Context) {
		w.Director = withTimeouts(w, map[string]any{"detach_disk": "2s", "attach_disk": "30s"})
		w.fails(ctx, "detach_disk", vm, disk) // ended before it brought another
		w.must(ctx, "attach_disk", vm, disk)
		w.must(ctx, "detach_disk", vm, disk)
		Expect(w.must(ctx, "get_disks", vm).Result).To(MatchJSON(`[]`))
	})
})
