//go:build e2e

package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/harness/embedded"
)

// The large file, and a tree of files with all types and attributes that a filesystem stores.
const (
	fillGiB = `(cd /var/vcap/store && mkdir -p tree/empty && echo x > tree/file && ln tree/file tree/hardlink && ln -s file tree/symlink &&
		mkfifo tree/fifo && mknod tree/device c 1 3 && truncate -s 64M tree/sparse && echo end >> tree/sparse &&
		install -m 4750 -o vcap -g vcap /bin/true tree/suid && touch -d 2001-02-03 tree/old && touch "tree/$(printf 'odd\nname')" && sync -f .) && ` +
		fillLarge + ` && ` + checkTree
	checkGiB  = checkLarge + ` && ` + checkTree
	checkTree = `(cd /var/vcap/store && stat --format='%N %F %a %U:%G %Y %t:%T %h' data tree tree/* | sha256sum && sha256sum < tree/sparse)`
)

// pvcNames returns the names of the PVCs in the namespace.
func (env *testEnv) pvcNames(ctx context.Context) []string {
	GinkgoHelper()
	pvcs, err := env.cluster.CoreV1().PersistentVolumeClaims(env.namespace).List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	names := []string{}
	for _, pvc := range pvcs.Items {
		names = append(names, pvc.Name)
	}
	return names
}

var _ = Describe("A disk changed by update_disk", Label("disks", "extended"), Ordered, func() {
	var (
		env      *testEnv
		vm       *testVM
		disk     string
		checksum string
		previous identity
	)
	BeforeAll(func(ctx context.Context) {
		env = newTestEnv(ctx)
		vm = env.createVM(ctx)
		previous = vm.identity(ctx)
		disk = env.createDisk(ctx, 64, map[string]any{"storage_class": embedded.CSIClass})
		vm.attach(ctx, disk)
		checksum = vm.run(ctx, fillDisk)
	}, NodeTimeout(longTest))

	getPVC := func(ctx context.Context) *corev1.PersistentVolumeClaim {
		GinkgoHelper()
		pvc, err := env.cluster.CoreV1().PersistentVolumeClaims(env.namespace).Get(ctx, disk, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		return pvc
	}
	properties := func(changed map[string]any) map[string]any {
		changed["storage_class"] = embedded.CSIClass
		return env.diskProperties(changed)
	}
	expectIntact := func(ctx context.Context) {
		GinkgoHelper()
		vm.attach(ctx, disk)
		Expect(vm.run(ctx, checkDisk)).To(Equal(checksum))
		Expect(vm.identity(ctx)).To(Equal(previous))
	}

	It("grows in place and has the new label", func(ctx context.Context) {
		vm.detach(ctx, disk)
		Expect(env.mustCall(ctx, "update_disk", disk, 96, properties(map[string]any{"labels": map[string]any{"team": "a"}})).Text()).To(Equal(disk))
		Expect(getPVC(ctx).Labels).To(HaveKeyWithValue("team", "a"))
		expectIntact(ctx)
		Expect(vm.diskSizeMiB(ctx, disk)).To(Equal(96))
	}, NodeTimeout(longTest))

	Describe("to a VolumeAttributesClass", func() {
		BeforeEach(func(ctx context.Context) {
			Expect(env.embedded.ControlPlane.Apply(ctx, embedded.CSIAttributesClasses)).To(Succeed())
			vm.detach(ctx, disk)
		})
		update := func(class string) []any {
			return []any{disk, 96, properties(map[string]any{"volume_attributes_class": class})}
		}

		It("keeps its class and its data if the driver rejects the class", func(ctx context.Context) {
			for range 2 { // a retry is another attempt of the driver
				Expect(env.mustFail(ctx, "update_disk", update(embedded.CSIInfeasibleAttributes)...).Message).To(And(
					ContainSubstring("VolumeAttributesClass "+embedded.CSIInfeasibleAttributes), ContainSubstring("must be a number from 1 to"), HaveSuffix("[disk-modify-failed]")))
				Expect(getPVC(ctx).Spec.VolumeAttributesClassName).To(BeNil())
			}
			expectIntact(ctx)
		}, NodeTimeout(longTest))

		It("has the class, and keeps its data", func(ctx context.Context) {
			env.mustCall(ctx, "update_disk", update(embedded.CSIFastAttributes)...)
			Expect(getPVC(ctx).Status.CurrentVolumeAttributesClassName).To(HaveValue(Equal(embedded.CSIFastAttributes)))
			expectIntact(ctx)
		}, NodeTimeout(longTest))

		It("keeps the previous class if the driver rejects another one", func(ctx context.Context) {
			env.mustFail(ctx, "update_disk", update(embedded.CSIInfeasibleAttributes)...)
			Eventually(func(g Gomega) {
				pvc := getPVC(ctx)
				g.Expect(pvc.Spec.VolumeAttributesClassName).To(HaveValue(Equal(embedded.CSIFastAttributes)))
				g.Expect(pvc.Status.ModifyVolumeStatus).To(BeNil(), "the driver applied the previous class again")
			}).WithContext(ctx).Should(Succeed())
			expectIntact(ctx)
		}, NodeTimeout(longTest))
	})

	It("is migrated by the agent if the change is not possible in place", func(ctx context.Context) {
		vm.detach(ctx, disk)
		failed := env.mustFail(ctx, "update_disk", disk, 96, properties(map[string]any{"volume_mode": "Block"}))
		Expect(failed.Type).To(Equal("Bosh::Clouds::NotSupported"))
		Expect(failed.Message).To(ContainSubstring("cannot change volume_mode of disk " + disk + " from Filesystem to Block in place"))
		vm.attach(ctx, disk)
		next := env.createDisk(ctx, 96, blockDisk)
		env.migrate(ctx, vm, disk, next)
		disk = next
		Expect(vm.run(ctx, checkDisk)).To(Equal(checksum))
		Expect(vm.identity(ctx)).To(Equal(previous))
		Eventually(env.pvcNames).WithContext(ctx).Should(ConsistOf(disk))
		vm.detach(ctx, disk)
		env.mustCall(ctx, "delete_disk", disk)
	}, NodeTimeout(longTest))
})
