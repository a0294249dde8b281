package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/simulated"
)

const snapshotErrorType = "Bosh::Clouds::NotImplemented"

// listSnapshots are the names of all VolumeSnapshots.
func (env testEnv) listSnapshots(ctx context.Context) []string {
	GinkgoHelper()
	found, err := dynamicClient.Resource(simulated.VolumeSnapshots).Namespace(env.namespace).List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	names := []string{}
	for _, each := range found.Items {
		names = append(names, each.GetName())
	}
	return names
}

// The director passes over NotImplemented alone: with any other error a deploy fails, after its jobs were stopped.
var _ = Describe("snapshot_disk where the storage takes none is NotImplemented, at once:", func() {
	var (
		env testEnv
		vm  string
	)
	BeforeEach(func(ctx context.Context) {
		env = newTestEnv(ctx)
		vm = env.createVM(ctx, "one")
	})

	It("a volume that no CSI driver has made", func(ctx context.Context) {
		disk := env.createUsedDisk(ctx, vm, map[string]any{"annotations": map[string]any{"test/local": "yes"}})
		failed := env.mustFail(ctx, "snapshot_disk", disk, map[string]any{})
		Expect(failed.Type).To(Equal(snapshotErrorType))
		Expect(failed.Message).To(And(ContainSubstring("no CSI driver"), ContainSubstring("storage_class")))
	})

	It("a VolumeSnapshotClass that is not there, by its property", func(ctx context.Context) {
		disk := env.createUsedDisk(ctx, vm, map[string]any{"snapshot_class": "none"})
		failed := env.mustFail(ctx, "snapshot_disk", disk, map[string]any{})
		Expect(failed.Type).To(Equal(snapshotErrorType))
		Expect(failed.Message).To(And(ContainSubstring(`"none" not found`), ContainSubstring("snapshot_class")))
	})

	It("and a class that is there is asked for", func(ctx context.Context) {
		disk := env.createUsedDisk(ctx, vm, map[string]any{"snapshot_class": "some"})
		Expect(env.mustCall(ctx, "snapshot_disk", disk, map[string]any{}).Text()).To(HavePrefix("snapshot-"))
	})
})
