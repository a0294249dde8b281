//go:build e2e

package e2e

import (
	"context"
	"path/filepath"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/harness/director"
	"bosh-kubernetes-cpi/test/harness/embedded"
)

// outageFixture is a VM with a disk, for calls that wait for a paused process of the cluster.
type outageFixture struct {
	env  *testEnv
	vm   *testVM
	disk string // attached to the VM; the file "mark" on it contains its CID
}

func newOutageFixture(ctx context.Context) *outageFixture {
	GinkgoHelper()
	f := &outageFixture{env: newTestEnv(ctx)}
	f.vm = f.env.createVM(ctx)
	f.disk = f.env.createDisk(ctx, 64, map[string]any{"storage_class": embedded.CSIAnyNodeClass})
	f.vm.attach(ctx, f.disk)
	f.vm.run(ctx, "echo "+f.disk+" >/var/vcap/store/mark && sync /var/vcap/store/mark")
	return f
}

// pauseProcess pauses a process of the cluster until resume is called.
func (f *outageFixture) pauseProcess(name string) (resume func()) {
	GinkgoHelper()
	process, err := f.env.embedded.Process(name)
	Expect(err).NotTo(HaveOccurred())
	Expect(syscall.Kill(process.PID(), syscall.SIGSTOP)).To(Succeed(), name)
	resume = func() { _ = syscall.Kill(process.PID(), syscall.SIGCONT) }
	DeferCleanup(resume)
	return resume
}

// pvc returns the disk's PVC.
func (f *outageFixture) pvc(ctx context.Context, disk string) *corev1.PersistentVolumeClaim {
	GinkgoHelper()
	pvc, err := f.env.cluster.CoreV1().PersistentVolumeClaims(f.env.namespace).Get(ctx, disk, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	return pvc
}

// volumeAttachments returns, for each VolumeAttachment of the disk's volume, whether the volume is attached.
func (f *outageFixture) volumeAttachments(ctx context.Context, disk string) (attached []bool) {
	GinkgoHelper()
	volume := f.pvc(ctx, disk).Spec.VolumeName
	list, err := f.env.cluster.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	for _, attachment := range list.Items {
		if name := attachment.Spec.Source.PersistentVolumeName; name != nil && *name == volume {
			attached = append(attached, attachment.Status.Attached)
		}
	}
	return attached
}

var _ = Describe("While a component of the cluster hangs,", Label("disks", "outages", "extended", labelSharedKernel), Serial, func() {
	var f *outageFixture
	BeforeEach(func(ctx context.Context) { f = newOutageFixture(ctx) }, NodeTimeout(longTest))

	// expectCompletes makes a call while the process is paused, resumes the process when the call waits for it, and expects the call to
	// complete.
	expectCompletes := func(ctx context.Context, process string, call func(), isWaiting func(Gomega)) {
		GinkgoHelper()
		previous := f.vm.identity(ctx)
		resume := f.pauseProcess(process)
		runConcurrently(call, func() {
			defer resume()
			Eventually(isWaiting).WithContext(ctx).WithPolling(100 * time.Millisecond).Should(Succeed())
		})
		Expect(f.vm.identity(ctx)).To(Equal(previous))
		Expect(f.vm.run(ctx, "cat /var/vcap/store/mark")).To(Equal(f.disk))
	}

	It("create_vm waits for the scheduler", func(ctx context.Context) {
		agentID, stemcell := f.env.namespace+"-new", f.vm.pod(ctx).Annotations["bosh.cloudfoundry.org/stemcell"]
		env, err := director.AgentEnv()
		Expect(err).NotTo(HaveOccurred())
		expectCompletes(ctx, "kube-scheduler", func() {
			f.env.mustCall(ctx, "create_vm", agentID, stemcell, map[string]any{}, manualNetwork(newAddress()), []string{}, env)
		}, func(g Gomega) {
			pod, err := f.env.cluster.CoreV1().Pods(f.env.namespace).Get(ctx, "agent-"+agentID, metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(pod.Spec.NodeName).To(BeEmpty())
		})
	}, NodeTimeout(longTest))

	It("the first attach_disk waits for the provisioner", func(ctx context.Context) {
		disk := f.env.createDisk(ctx, 64, map[string]any{"storage_class": embedded.CSIAnyNodeClass})
		expectCompletes(ctx, "csi-provisioner", func() { f.env.mustCall(ctx, "attach_disk", f.vm.cid, disk) }, func(g Gomega) {
			pvc := f.pvc(ctx, disk)
			g.Expect(pvc.Annotations).To(HaveKey("volume.kubernetes.io/selected-node"))
			g.Expect(pvc.Spec.VolumeName).To(BeEmpty())
		})
	}, NodeTimeout(longTest))

	It("attach_disk waits for the attacher", func(ctx context.Context) {
		disk := f.env.createDisk(ctx, 64, map[string]any{"storage_class": embedded.CSIAnyNodeClass})
		f.env.mustCall(ctx, "attach_disk", f.vm.cid, disk)
		f.env.mustCall(ctx, "detach_disk", f.vm.cid, disk)
		Eventually(func() []bool { return f.volumeAttachments(ctx, disk) }).WithContext(ctx).Should(BeEmpty())
		expectCompletes(ctx, "csi-attacher", func() { f.env.mustCall(ctx, "attach_disk", f.vm.cid, disk) }, func(g Gomega) {
			g.Expect(f.volumeAttachments(ctx, disk)).To(Equal([]bool{false}))
		})
	}, NodeTimeout(longTest))

	It("resize_disk waits for the resizer", func(ctx context.Context) {
		disk := f.env.createDisk(ctx, 64, map[string]any{"storage_class": embedded.CSIClass})
		f.env.mustCall(ctx, "attach_disk", f.vm.cid, disk)
		f.env.mustCall(ctx, "detach_disk", f.vm.cid, disk)
		expectCompletes(ctx, "csi-resizer", func() { f.env.mustCall(ctx, "resize_disk", disk, 128) }, func(g Gomega) {
			pvc := f.pvc(ctx, disk)
			g.Expect(pvc.Spec.Resources.Requests.Storage().Cmp(*pvc.Status.Capacity.Storage())).To(Equal(1))
		})
		f.env.mustCall(ctx, "attach_disk", f.vm.cid, disk)
	}, NodeTimeout(longTest))

	It("delete_disk waits for the controller manager", func(ctx context.Context) {
		disk := f.env.createDisk(ctx, 64, map[string]any{})
		expectCompletes(ctx, "kube-controller-manager", func() { f.env.mustCall(ctx, "delete_disk", disk) }, func(g Gomega) {
			g.Expect(f.pvc(ctx, disk).DeletionTimestamp).NotTo(BeNil())
		})
	}, NodeTimeout(longTest))

	It("attach_disk, detach_disk, and create_vm of an image on the node do not wait for the registry", func(ctx context.Context) {
		resume := f.pauseProcess("registry")
		defer resume()
		f.vm.detach(ctx, f.disk)
		otherVM := f.env.createVMFromSpec(ctx, vmSpec{stemcellCID: f.vm.pod(ctx).Annotations["bosh.cloudfoundry.org/stemcell"]})
		otherVM.attach(ctx, f.disk)
		Expect(otherVM.run(ctx, "cat /var/vcap/store/mark")).To(Equal(f.disk))
	}, NodeTimeout(longTest))
})

var _ = Describe("After etcd is restored from a backup,", Label("disks", "outages", "extended", labelSharedKernel), Serial, func() {
	It("a disk that was attached after the backup keeps its data when it is attached to its VM again", func(ctx context.Context) {
		f := newOutageFixture(ctx)
		f.vm.detach(ctx, f.disk)
		Eventually(func() []bool { return f.volumeAttachments(ctx, f.disk) }).WithContext(ctx).Should(BeEmpty())
		plane, backup := f.env.embedded.ControlPlane, filepath.Join(GinkgoT().TempDir(), "etcd")
		Expect(plane.BackUpEtcd(ctx, backup)).To(Succeed())
		f.vm.attach(ctx, f.disk)
		previous := f.vm.identity(ctx)
		Expect(plane.RestoreEtcd(ctx, backup)).To(Succeed())

		Expect(f.env.mustCall(ctx, "get_disks", f.vm.cid).Result).To(MatchJSON(`[]`))
		f.env.mustCall(ctx, "attach_disk", f.vm.cid, f.disk)
		// The kubelet ends the container of the attachment Pod that was lost only when it starts again.
		Expect(f.env.node.RestartKubelet(ctx)).To(Succeed())
		Eventually(func() []string { return f.env.attachmentPIDs(ctx, f.disk) }).WithContext(ctx).Should(HaveLen(1))
		Expect(f.vm.identity(ctx)).To(Equal(previous))
		f.vm.run(ctx, "echo restored >>/var/vcap/store/mark && sync /var/vcap/store/mark")

		f.vm.detach(ctx, f.disk)
		otherVM := f.env.createVMFromSpec(ctx, vmSpec{stemcellCID: f.vm.pod(ctx).Annotations["bosh.cloudfoundry.org/stemcell"]})
		otherVM.attach(ctx, f.disk)
		Expect(otherVM.run(ctx, "cat /var/vcap/store/mark")).To(Equal(f.disk + "\nrestored"))
	}, NodeTimeout(longTest))
})
