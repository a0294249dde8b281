//go:build e2e

package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/embedded"
)

// bringClass makes a storage class of the CSI driver for this test.
func (w *world) bringClass(ctx context.Context, class *storagev1.StorageClass) {
	GinkgoHelper()
	class.Name = w.namespace
	class.Provisioner, class.VolumeBindingMode = w.driver, new(storagev1.VolumeBindingWaitForFirstConsumer)
	_, err := w.cluster.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) {
		Expect(w.cluster.StorageV1().StorageClasses().Delete(ctx, class.Name, metav1.DeleteOptions{})).To(Succeed())
	})
}

var _ = Describe("A disk whose volume cannot be had on the machine's node", Label("disks"), func() {
	for mode := range movable {
		DescribeTable("on a "+mode+" claim is not attached, which changes nothing, and it is said why",
			func(ctx context.Context, class storagev1.StorageClass, words string) {
				w := newWorld(ctx)
				m := w.createMachine(ctx)
				w.bringClass(ctx, class.DeepCopy())
				disk := w.createDisk(ctx, 64, map[string]any{"storage_class": w.namespace, "volume_mode": mode})
				before := m.identity(ctx)
				failed := w.fails(ctx, "attach_disk", m.cid, disk)
				Expect(failed.Message).To(And(ContainSubstring("disk "+disk+" cannot be attached"), ContainSubstring(words), Not(ContainSubstring("timed out"))))
				Expect(string(w.must(ctx, "get_disks", m.cid).Result)).To(Equal("[]"))
				pods, err := w.cluster.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{})
				Expect(err).NotTo(HaveOccurred())
				Expect(pods.Items).To(HaveLen(1))
				Expect(m.identity(ctx)).To(Equal(before))
				w.must(ctx, "delete_disk", disk)
			},
			Entry("by the scheduler: it is to be elsewhere", storagev1.StorageClass{AllowedTopologies: []corev1.TopologySelectorTerm{{
				MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: embedded.CSITopologyKey, Values: []string{"node-9"}}},
			}}}, "didn't find available persistent volumes to bind", NodeTimeout(longTest)),
			Entry("by the provisioner: it cannot be made", storagev1.StorageClass{Parameters: map[string]string{embedded.CSIReachParameter: "moon"}},
				`the class's parameter reach is "moon"`, NodeTimeout(longTest)),
		)
	}
})
