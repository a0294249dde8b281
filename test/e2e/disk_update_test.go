//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"

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

var _ = Describe("A disk with 1 GiB of data", Label("disks", "extended"), Ordered, Serial, func() {
	var (
		env      *testEnv
		vm       *testVM
		disk     string
		checksum string
		previous identity
		loops    int    // number of the node's loop devices before the disk was created
		mounts   string // the kubelet's mounts before the disk was created
	)
	BeforeAll(func(ctx context.Context) {
		env = newTestEnv(ctx)
		vm = env.createVM(ctx)
		previous, loops, mounts = vm.identity(ctx), len(env.volumeLoopDevices(ctx)), env.kubeletMounts(ctx)
		disk = env.createDisk(ctx, 1536, filesystemDisk)
		vm.attach(ctx, disk)
		checksum = vm.run(ctx, fillGiB)
	}, NodeTimeout(longTest))

	// updateDisk updates the disk like a director with `enable_cpi_update_disk`, and returns the CID of the updated disk.
	updateDisk := func(ctx context.Context, sizeMiB int, properties map[string]any) string {
		GinkgoHelper()
		vm.detach(ctx, disk)
		successor := env.mustCall(ctx, "update_disk", disk, sizeMiB, env.diskProperties(properties)).Text()
		vm.attach(ctx, successor)
		Expect(vm.run(ctx, checkGiB)).To(Equal(checksum))
		Expect(vm.diskSizeMiB(ctx, successor)).To(Equal(sizeMiB))
		Expect(vm.identity(ctx)).To(Equal(previous))
		return successor
	}

	for _, change := range []struct {
		to         string
		sizeMiB    int
		properties map[string]any
		filesystem string
	}{
		{"another StorageClass", 1536, map[string]any{"storage_class": embedded.CSIClass}, "ext4"},
		{"a Block PVC", 1600, map[string]any{"storage_class": embedded.CSIClass, "volume_mode": "Block"}, "ext4"},
		{"xfs in a class without volume expansion", 1664, map[string]any{"storage_class": embedded.CSIFixedClass, "volume_mode": "Block", "filesystem": "xfs"}, "xfs"},
		{"a larger size in a class without volume expansion", 1728, map[string]any{"storage_class": embedded.CSIFixedClass, "volume_mode": "Block", "filesystem": "xfs"}, "xfs"},
		{"a smaller Filesystem PVC", 1408, map[string]any{"storage_class": "standard"}, "ext4"},
	} {
		It("keeps its data when update_disk moves it to "+change.to+", and the old disk is deleted", func(ctx context.Context) {
			successor := updateDisk(ctx, change.sizeMiB, change.properties)
			Expect(successor).NotTo(Equal(disk))
			Eventually(env.pvcNames).WithContext(ctx).Should(ConsistOf(successor))
			Expect(vm.run(ctx, "findmnt --noheadings --output FSTYPE /var/vcap/store")).To(Equal(change.filesystem))
			Expect(env.mustCall(ctx, "update_disk", disk, change.sizeMiB, env.diskProperties(change.properties)).Text()).To(Equal(successor), "the retried call")
			disk = successor
		}, NodeTimeout(longTest))
	}

	It("is unchanged and usable when its data does not fit the new size of update_disk", func(ctx context.Context) {
		vm.detach(ctx, disk)
		updateErr := env.mustFail(ctx, "update_disk", disk, 512, env.diskProperties(blockDisk))
		Expect(updateErr.Type).To(Equal("Bosh::Clouds::NoDiskSpace"))
		Expect(updateErr.Message).To(ContainSubstring("does not fit on a disk of 512 MiB"))
		vm.attach(ctx, disk)
		Expect(vm.run(ctx, checkGiB)).To(Equal(checksum))
		Eventually(env.pvcNames).WithContext(ctx).Should(ConsistOf(disk))
	}, NodeTimeout(longTest))

	It("is copied from the start when the copy is killed and the call is retried", func(ctx context.Context) {
		vm.detach(ctx, disk)
		callCtx, cancel := context.WithCancel(ctx)
		done := make(chan error)
		go func() {
			_, err := env.Call(callCtx, "update_disk", disk, 1536, env.diskProperties(map[string]any{"storage_class": embedded.CSIClass}))
			done <- err
		}()
		env.freezeCopy(ctx, disk)
		cancel()
		Expect(<-done).To(HaveOccurred())
		Expect(env.mustFail(ctx, "attach_disk", vm.cid, disk).Message).To(ContainSubstring("is being copied to disk"))
		for _, pid := range env.copyPIDs(ctx, disk) {
			_, _ = env.node.Shell(ctx, "kill -9 "+pid) // fails if the process exited
		}
		Eventually(func() corev1.PodPhase { return env.attachmentPod(ctx, disk).Status.Phase }).WithContext(ctx).Should(Equal(corev1.PodFailed))
		successor := env.mustCall(ctx, "update_disk", disk, 1536, env.diskProperties(map[string]any{"storage_class": embedded.CSIClass})).Text()
		vm.attach(ctx, successor)
		Expect(vm.run(ctx, checkGiB)).To(Equal(checksum))
		Eventually(env.pvcNames).WithContext(ctx).Should(ConsistOf(successor))
		disk = successor
	}, NodeTimeout(longTest))

	It("grows in place in a class with volume expansion", func(ctx context.Context) {
		Expect(updateDisk(ctx, 2048, map[string]any{"storage_class": embedded.CSIClass, "labels": map[string]any{"team": "a"}})).To(Equal(disk))
		pvc, err := env.cluster.CoreV1().PersistentVolumeClaims(env.namespace).Get(ctx, disk, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(pvc.Labels).To(HaveKeyWithValue("team", "a"))
		vm.detach(ctx, disk)
		env.mustCall(ctx, "delete_disk", disk)
	}, NodeTimeout(longTest))

	It("leaves no loop devices or mounts", func(ctx context.Context) {
		Eventually(func() int { return len(env.volumeLoopDevices(ctx)) }).WithContext(ctx).Should(BeNumerically("<=", loops))
		Eventually(env.kubeletMounts).WithContext(ctx).Should(Equal(mounts))
	})
})

// copyPIDs returns the process IDs of the copy of this disk on the node. The processes have the disk's CID in their environment.
func (env *testEnv) copyPIDs(ctx context.Context, disk string) []string {
	GinkgoHelper()
	out, err := env.node.Shell(ctx, fmt.Sprintf(`for p in /proc/[0-9]*; do
		tr '\0' '\n' <"$p/environ" 2>/dev/null | grep -qx "OLD=%s" && echo "${p#/proc/}"; done; true`, disk))
	Expect(err).NotTo(HaveOccurred())
	return strings.Fields(out)
}

// freezeCopy pauses the copy of this disk as soon as it copies data, so that it does not finish before the test continues.
func (env *testEnv) freezeCopy(ctx context.Context, disk string) {
	GinkgoHelper()
	_, err := env.node.Shell(ctx, fmt.Sprintf(`while true; do for p in $(pgrep -x cp); do
		grep -qzx "OLD=%s" "/proc/$p/environ" 2>/dev/null && kill -STOP "$p" && exit; done; sleep 0.02; done`, disk))
	Expect(err).NotTo(HaveOccurred())
}
