//go:build e2e

package e2e

import (
	"context"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/director"
	"bosh-kubernetes-cpi/test/embedded"
)

// blocked is a call that a process of the cluster keeps waiting while it stands still.
type blocked struct {
	world *world
	m     *machine
	disk  string // attached to the machine, in the file "mark" of which is its own name
}

func newBlocked(ctx context.Context) *blocked {
	GinkgoHelper()
	b := &blocked{world: newWorld(ctx)}
	b.m = b.world.createMachine(ctx)
	b.disk = b.world.createDisk(ctx, 64, map[string]any{"storage_class": embedded.CSIMovableClass})
	b.m.attach(ctx, b.disk)
	b.m.run(ctx, "echo "+b.disk+" >/var/vcap/store/mark && sync /var/vcap/store/mark")
	return b
}

// freeze has a process of the cluster stand still until the function that it returns is called.
func (b *blocked) freeze(name string) (thaw func()) {
	GinkgoHelper()
	process, err := b.world.embedded.Process(name)
	Expect(err).NotTo(HaveOccurred())
	Expect(syscall.Kill(process.PID(), syscall.SIGSTOP)).To(Succeed(), name)
	thaw = func() { _ = syscall.Kill(process.PID(), syscall.SIGCONT) }
	DeferCleanup(thaw)
	return thaw
}

// claim is the disk's.
func (b *blocked) claim(ctx context.Context, disk string) *corev1.PersistentVolumeClaim {
	GinkgoHelper()
	claim, err := b.world.cluster.CoreV1().PersistentVolumeClaims(b.world.namespace).Get(ctx, disk, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	return claim
}

// volumeAttachments are whether the disk's volume is attached to its node, for each attachment of it.
func (b *blocked) volumeAttachments(ctx context.Context, disk string) (attached []bool) {
	GinkgoHelper()
	volume := b.claim(ctx, disk).Spec.VolumeName
	all, err := b.world.cluster.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	for _, each := range all.Items {
		if name := each.Spec.Source.PersistentVolumeName; name != nil && *name == volume {
			attached = append(attached, each.Status.Attached)
		}
	}
	return attached
}

var _ = Describe("A call that waits for a part of the cluster that stands still", Label("disks", "outages", "extended", thisMachine), Serial, func() {
	var b *blocked
	BeforeEach(func(ctx context.Context) { b = newBlocked(ctx) }, NodeTimeout(longTest))

	// goesOn makes a call while the process stands still, until the call has come to where it waits for it.
	goesOn := func(ctx context.Context, process string, call func(), waits func(Gomega)) {
		GinkgoHelper()
		before := b.m.identity(ctx)
		thaw := b.freeze(process)
		atOnce(call, func() {
			defer thaw()
			Eventually(waits).WithContext(ctx).WithPolling(100 * time.Millisecond).Should(Succeed())
		})
		Expect(b.m.identity(ctx)).To(Equal(before))
		Expect(b.m.run(ctx, "cat /var/vcap/store/mark")).To(Equal(b.disk))
	}

	It("goes on when it is create_vm and the scheduler", func(ctx context.Context) {
		agent, stemcell := b.world.namespace+"-new", b.m.pod(ctx).Annotations["bosh.cloudfoundry.org/stemcell"]
		env, err := director.AgentEnv()
		Expect(err).NotTo(HaveOccurred())
		goesOn(ctx, "kube-scheduler", func() {
			b.world.must(ctx, "create_vm", agent, stemcell, map[string]any{}, manual(newAddress()), []string{}, env)
		}, func(g Gomega) {
			pod, err := b.world.cluster.CoreV1().Pods(b.world.namespace).Get(ctx, "agent-"+agent, metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(pod.Spec.NodeName).To(BeEmpty())
		})
	}, NodeTimeout(longTest))

	It("goes on when it is the first attach_disk and the provisioner", func(ctx context.Context) {
		disk := b.world.createDisk(ctx, 64, map[string]any{"storage_class": embedded.CSIMovableClass})
		goesOn(ctx, "csi-provisioner", func() { b.world.must(ctx, "attach_disk", b.m.cid, disk) }, func(g Gomega) {
			claim := b.claim(ctx, disk)
			g.Expect(claim.Annotations).To(HaveKey("volume.kubernetes.io/selected-node"))
			g.Expect(claim.Spec.VolumeName).To(BeEmpty())
		})
	}, NodeTimeout(longTest))

	It("goes on when it is attach_disk and the attacher", func(ctx context.Context) {
		disk := b.world.createDisk(ctx, 64, map[string]any{"storage_class": embedded.CSIMovableClass})
		b.world.must(ctx, "attach_disk", b.m.cid, disk)
		b.world.must(ctx, "detach_disk", b.m.cid, disk)
		Eventually(func() []bool { return b.volumeAttachments(ctx, disk) }).WithContext(ctx).Should(BeEmpty())
		goesOn(ctx, "csi-attacher", func() { b.world.must(ctx, "attach_disk", b.m.cid, disk) }, func(g Gomega) {
			g.Expect(b.volumeAttachments(ctx, disk)).To(Equal([]bool{false}))
		})
	}, NodeTimeout(longTest))

	It("goes on when it is resize_disk and the resizer", func(ctx context.Context) {
		disk := b.world.createDisk(ctx, 64, map[string]any{"storage_class": embedded.CSIClass})
		b.world.must(ctx, "attach_disk", b.m.cid, disk)
		b.world.must(ctx, "detach_disk", b.m.cid, disk)
		goesOn(ctx, "csi-resizer", func() { b.world.must(ctx, "resize_disk", disk, 128) }, func(g Gomega) {
			claim := b.claim(ctx, disk)
			g.Expect(claim.Spec.Resources.Requests.Storage().Cmp(*claim.Status.Capacity.Storage())).To(Equal(1))
		})
		b.world.must(ctx, "attach_disk", b.m.cid, disk)
	}, NodeTimeout(longTest))

	It("goes on when it is delete_disk and the controllers", func(ctx context.Context) {
		disk := b.world.createDisk(ctx, 64, map[string]any{})
		goesOn(ctx, "kube-controller-manager", func() { b.world.must(ctx, "delete_disk", disk) }, func(g Gomega) {
			g.Expect(b.claim(ctx, disk).DeletionTimestamp).NotTo(BeNil())
		})
	}, NodeTimeout(longTest))

	It("does not wait for the registry, when it is attach_disk, detach_disk, or create_vm of an image that the node has", func(ctx context.Context) {
		thaw := b.freeze("registry")
		defer thaw()
		b.m.detach(ctx, b.disk)
		other := b.world.bringMachine(ctx, wanted{stemcellCID: b.m.pod(ctx).Annotations["bosh.cloudfoundry.org/stemcell"]})
		other.attach(ctx, b.disk)
		Expect(other.run(ctx, "cat /var/vcap/store/mark")).To(Equal(b.disk))
	}, NodeTimeout(longTest))
})
