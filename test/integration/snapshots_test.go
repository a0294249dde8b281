package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const notImplementedError = "Bosh::Clouds::NotImplemented"

// The director passes over NotImplemented alone: with any other error a deploy fails, after its jobs were stopped.
var _ = Describe("snapshot_disk where the storage takes none is NotImplemented, at once:", func() {
	var (
		w  world
		vm string
	)
	BeforeEach(func(ctx context.Context) {
		w = newWorld(ctx)
		vm = w.createVM(ctx, "one")
	})

	It("a volume that no CSI driver has made", func(ctx context.Context) {
		disk := w.usedDisk(ctx, vm, map[string]any{"annotations": map[string]any{"test/local": "yes"}})
		failed := w.fails(ctx, "snapshot_disk", disk, map[string]any{})
		Expect(failed.Type).To(Equal(notImplementedError))
		Expect(failed.Message).To(And(ContainSubstring("no CSI driver"), ContainSubstring("storage_class")))
	})

	It("a VolumeSnapshotClass that is not there, by its property", func(ctx context.Context) {
		disk := w.usedDisk(ctx, vm, map[string]any{"snapshot_class": "none"})
		failed := w.fails(ctx, "snapshot_disk", disk, map[string]any{})
		Expect(failed.Type).To(Equal(notImplementedError))
		Expect(failed.Message).To(And(ContainSubstring(`"none" not found`), ContainSubstring("snapshot_class")))
	})

	It("and a class that is there is asked for", func(ctx context.Context) {
		disk := w.usedDisk(ctx, vm, map[string]any{"snapshot_class": "some"})
		Expect(w.must(ctx, "snapshot_disk", disk, map[string]any{}).Text()).To(HavePrefix("snapshot-"))
	})
})
