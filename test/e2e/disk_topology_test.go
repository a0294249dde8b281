//go:build e2e

package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/harness/embedded"
)

// createStorageClass creates a StorageClass of the CSI driver for this test. Its name is the name of the namespace.
func (env *testEnv) createStorageClass(ctx context.Context, storageClass *storagev1.StorageClass) {
	GinkgoHelper()
	storageClass.Name = env.namespace
	storageClass.Provisioner, storageClass.VolumeBindingMode = env.csiDriver, new(storagev1.VolumeBindingWaitForFirstConsumer)
	_, err := env.cluster.StorageV1().StorageClasses().Create(ctx, storageClass, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) {
		Expect(env.cluster.StorageV1().StorageClasses().Delete(ctx, storageClass.Name, metav1.DeleteOptions{})).To(Succeed())
	})
}

var _ = Describe("A disk with a volume that the VM's node cannot access", Label("disks"), func() {
	for mode := range movableDisks {
		DescribeTable("on a "+mode+" PVC is not attached, the VM is unchanged, and the error reports the cause",
			func(ctx context.Context, storageClass storagev1.StorageClass, cause string) {
				env := newTestEnv(ctx)
				vm := env.createVM(ctx)
				env.createStorageClass(ctx, storageClass.DeepCopy())
				disk := env.createDisk(ctx, 64, map[string]any{"storage_class": env.namespace, "volume_mode": mode})
				previous := vm.identity(ctx)
				attachErr := env.mustFail(ctx, "attach_disk", vm.cid, disk)
				Expect(attachErr.Message).To(And(ContainSubstring("cannot attach disk "+disk), ContainSubstring(cause), Not(ContainSubstring("timed out"))))
				Expect(string(env.mustCall(ctx, "get_disks", vm.cid).Result)).To(Equal("[]"))
				pods, err := env.cluster.CoreV1().Pods(env.namespace).List(ctx, metav1.ListOptions{})
				Expect(err).NotTo(HaveOccurred())
				Expect(pods.Items).To(HaveLen(1))
				Expect(vm.identity(ctx)).To(Equal(previous))
				env.mustCall(ctx, "delete_disk", disk)
			},
			extended(mode == "Filesystem"),
			Entry("from the scheduler: the topology excludes the node", storagev1.StorageClass{AllowedTopologies: []corev1.TopologySelectorTerm{{
				MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: embedded.CSITopologyKey, Values: []string{"node-9"}}},
			}}}, "didn't find available persistent volumes to bind", NodeTimeout(longTest)),
			Entry("from the provisioner: the volume cannot be created", storagev1.StorageClass{Parameters: map[string]string{embedded.CSIAccessibilityParameter: "moon"}},
				`StorageClass parameter accessibility is "moon"`, NodeTimeout(longTest)),
		)
	}
})
