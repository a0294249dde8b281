package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/harness/simulated"
)

const snapshotErrorType = "Bosh::Clouds::NotImplemented"

// listSnapshots returns the names of all VolumeSnapshots in the namespace.
func (env testEnv) listSnapshots(ctx context.Context) []string {
	GinkgoHelper()
	found, err := dynamicClient.Resource(simulated.VolumeSnapshots).Namespace(env.namespace).List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	names := []string{}
	for _, snapshot := range found.Items {
		names = append(names, snapshot.GetName())
	}
	return names
}

// The director ignores only NotImplemented. Any other error of snapshot_disk makes a deploy fail after its jobs were stopped.
var _ = Describe("snapshot_disk", func() {
	var (
		env testEnv
		vm  string
	)
	BeforeEach(func(ctx context.Context) {
		env = newTestEnv(ctx)
		vm = env.createVM(ctx, "one")
	})

	It("fails at once with NotImplemented for a volume without a CSI driver", func(ctx context.Context) {
		disk := env.createUsedDisk(ctx, vm, map[string]any{"annotations": map[string]any{"test/local": "yes"}})
		failed := env.mustFail(ctx, "snapshot_disk", disk, map[string]any{})
		Expect(failed.Type).To(Equal(snapshotErrorType))
		Expect(failed.Message).To(And(ContainSubstring("was not provisioned by a CSI driver"), ContainSubstring("storage_class")))
	})

	It("fails at once with NotImplemented if the VolumeSnapshotClass in snapshot_class does not exist", func(ctx context.Context) {
		disk := env.createUsedDisk(ctx, vm, map[string]any{"snapshot_class": "none"})
		failed := env.mustFail(ctx, "snapshot_disk", disk, map[string]any{})
		Expect(failed.Type).To(Equal(snapshotErrorType))
		Expect(failed.Message).To(And(ContainSubstring(`"none" not found`), ContainSubstring("snapshot_class")))
	})

	It("uses the VolumeSnapshotClass in snapshot_class", func(ctx context.Context) {
		disk := env.createUsedDisk(ctx, vm, map[string]any{"snapshot_class": "some"})
		Expect(env.mustCall(ctx, "snapshot_disk", disk, map[string]any{}).Text()).To(HavePrefix("snapshot-"))
	})
})
