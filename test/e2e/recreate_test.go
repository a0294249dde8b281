//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/embedded"
)

// kept is what a machine that is made again for each disk has for good.
type kept struct{ Address, Node, Data string }

func (m *machine) kept(ctx context.Context) kept {
	GinkgoHelper()
	return kept{Address: m.pod(ctx).Status.PodIP, Node: m.pod(ctx).Spec.NodeName, Data: m.identity(ctx).Data}
}

// gVisorClass is the RuntimeClass of Pods in sandboxes of gVisor, which show them no device of the node.
const gVisorClass = "gvisor"

const sandboxes = `
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: ` + gVisorClass + `}
handler: runsc
`

// Block claims need a sandbox that takes devices of its own, as Kata's; the node's own runtime stands in
// for it.
var _ = Describe("A machine with disk_strategy: recreate", Label("disks"), func() {
	recreated := map[string]any{"disk_strategy": "recreate", "ephemeral_disk": 512}
	inGVisor := map[string]any{"disk_strategy": "recreate", "ephemeral_disk": 512, "runtime_class": gVisorClass}

	for kind, subject := range map[string]struct {
		stemcell string
		vm, disk map[string]any
		labels   Labels
	}{
		"with a Block claim":                 {"E2E_STEMCELL", recreated, onBlock, nil},
		"with a directory":                   {"E2E_STEMCELL_SYSTEMD", recreated, map[string]any{"attach": "bind"}, Label("extended")},
		"with a filesystem as its directory": {"E2E_STEMCELL", recreated, map[string]any{"attach": "bind", "storage_class": embedded.CSIClass}, Label("extended")},
		"in gVisor, with a directory":        {"E2E_STEMCELL", inGVisor, map[string]any{"attach": "bind"}, Label("extended", thisMachine)},
	} {
		Describe(kind, subject.labels, Ordered, func() {
			var (
				w        *world
				m        *machine
				disk     string
				checksum string
				before   kept
			)
			BeforeAll(func(ctx context.Context) {
				w = newWorld(ctx)
				Expect(w.embedded.ControlPlane.Apply(ctx, sandboxes)).To(Succeed())
				m = w.createMachineFrom(ctx, os.Getenv(subject.stemcell), subject.vm)
				before = m.kept(ctx)
				disk = w.createDisk(ctx, 64, subject.disk)
			}, NodeTimeout(longTest))

			It("keeps its address and its data while it gets the disk", func(ctx context.Context) {
				m.run(ctx, keeper)
				m.awaitJob(ctx)
				m.attach(ctx, disk)
				checksum = m.run(ctx, fillDisk)
				m.awaitJob(ctx)
				Expect(m.kept(ctx)).To(Equal(before))
				m.detach(ctx, disk)
				m.attach(ctx, disk)
				Expect(m.run(ctx, checkDisk)).To(Equal(checksum))
				Expect(m.kept(ctx)).To(Equal(before))
			}, NodeTimeout(longTest))

			// asBefore checks the machine after its Pod or container was made again.
			asBefore := func(ctx context.Context) {
				GinkgoHelper()
				m.awaitAgent(ctx)
				m.awaitJob(ctx)
				Expect(m.run(ctx, checkDisk)).To(Equal(checksum))
				Expect(m.run(ctx, "tail -n 1 /var/vcap/data/keeper.starts")).To(Equal("with"))
				Expect(m.kept(ctx)).To(Equal(before))
			}

			It("has the disk before any job when its Pod was taken away, and made again by the next call", func(ctx context.Context) {
				pods := w.cluster.CoreV1().Pods(w.namespace)
				Expect(pods.Delete(ctx, m.cid, metav1.DeleteOptions{})).To(Succeed())
				Eventually(func() error { _, err := pods.Get(ctx, m.cid, metav1.GetOptions{}); return err }).WithContext(ctx).ShouldNot(Succeed())
				Expect(w.must(ctx, "has_vm", m.cid).Result).To(MatchJSON("true"))
				asBefore(ctx)
			}, NodeTimeout(longTest))

			It("has the disk before any job when it is rebooted", func(ctx context.Context) {
				w.must(ctx, "reboot_vm", m.cid)
				asBefore(ctx)
			}, NodeTimeout(longTest))

			It("has the disk before any job when its init is killed, and the attachment's process with it", func(ctx context.Context) {
				w.killHolder(ctx, disk)
				m.killInit(ctx)
				asBefore(ctx)
			}, NodeTimeout(longTest))

			It("is deleted with the disk attached, which survives, and all else goes", func(ctx context.Context) {
				w.must(ctx, "delete_vm", m.cid)
				Eventually(func() (int, error) {
					left, err := w.cluster.CoreV1().PersistentVolumeClaims(w.namespace).List(ctx, metav1.ListOptions{})
					return len(left.Items), err
				}).WithContext(ctx).Should(Equal(1))
				other := w.createMachine(ctx)
				other.attach(ctx, disk)
				Expect(other.run(ctx, checkDisk)).To(Equal(checksum))
				w.must(ctx, "delete_vm", other.cid)
				w.must(ctx, "delete_disk", disk)
				Eventually(w.mounts).WithContext(ctx).ShouldNot(ContainSubstring(disk))
			}, NodeTimeout(longTest))
		})
	}

	DescribeTable("ends well wherever attach_disk and detach_disk were killed, when they are repeated",
		func(ctx context.Context, properties map[string]any) {
			w := newWorld(ctx)
			m := w.createMachineFrom(ctx, os.Getenv("E2E_STEMCELL"), recreated)
			disk, before := w.createDisk(ctx, 64, properties), m.kept(ctx)
			m.attach(ctx, disk)
			checksum := m.run(ctx, fillDisk)
			killing := w.killing()
			for attached, n := true, 1; ; n++ {
				method := "attach_disk"
				if attached {
					method = "detach_disk"
					m.tell(ctx, "unmount_disk", disk)
					m.tell(ctx, "remove_persistent_disk", disk)
				}
				cut := killing(ctx, n, method, m.cid, disk)
				By(fmt.Sprintf("%s killed at request %d: %v", method, n, cut))
				if attached {
					response, err := w.Call(ctx, method, m.cid, disk)
					Expect(err).NotTo(HaveOccurred())
					if response.Error != nil {
						Expect(response.Error.Type).To(Equal("Bosh::Clouds::DiskNotAttached"))
					}
					m.awaitAgent(ctx)
				} else {
					m.attach(ctx, disk)
					Expect(m.run(ctx, checkDisk)).To(Equal(checksum))
				}
				Expect(m.kept(ctx)).To(Equal(before))
				attached = !attached
				if !cut && attached {
					return
				}
			}
		},
		Entry("with a Block claim", onBlock, Label("extended"), NodeTimeout(2*longTest)),
		Entry("with a directory", map[string]any{"attach": "bind"}, Label("extended"), NodeTimeout(2*longTest)),
	)

	It("has its data moved from disk to disk by its agent", func(ctx context.Context) {
		w := newWorld(ctx)
		m := w.createMachineFrom(ctx, os.Getenv("E2E_STEMCELL"), recreated)
		w.migrates(ctx, m, onBlock, onBlock)
	}, Label("extended"), NodeTimeout(longTest))
})
