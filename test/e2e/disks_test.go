//go:build e2e

package e2e

import (
	"context"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/embedded"
)

// The kinds of claims that disks are on.
var (
	onFilesystem = map[string]any{}
	onBlock      = map[string]any{"storage_class": embedded.CSIClass, "volume_mode": "Block"}
)

const (
	fillDisk  = `head -c 1048576 /dev/urandom > /var/vcap/store/data && sync /var/vcap/store/data && sha256sum < /var/vcap/store/data`
	checkDisk = `mountpoint -q /var/vcap/store && sha256sum < /var/vcap/store/data`
)

// isItsMachines are the scenarios in which somebody takes the disk from its machine, or tries to.
func isItsMachines(s *subject) {
	It("stays when its attachment is deleted by someone else, until it is free", func(ctx context.Context) {
		Expect(s.cluster.CoreV1().Pods(s.namespace).Delete(ctx, s.disk+"-attachment", metav1.DeleteOptions{})).To(Succeed())
		s.m.run(ctx, "touch /var/vcap/store/more && sync")
		other := s.createMachine(ctx)
		Expect(s.fails(ctx, "attach_disk", other.cid, s.disk).Message).To(ContainSubstring("disk " + s.disk + " is attached to VM " + s.m.cid))
		s.must(ctx, "delete_vm", other.cid)
		s.intact(ctx)
	}, NodeTimeout(longTest))

	for deed, user := range map[string]string{
		"holds a file":                           `exec 7</var/vcap/store/data; exec sleep 1000`,
		"works in it":                            `cd /var/vcap/store && exec sleep 1000`,
		"has it in a mount namespace of its own": `cd / && exec unshare --mount sleep 1000`,
	} {
		It("is not detached while a process "+deed+", even after a lazy unmount", func(ctx context.Context) {
			s.m.run(ctx, "cd / && (setsid bash -c '"+user+"' </dev/null >/dev/null 2>&1 &)")
			Eventually(func() (string, error) { return s.m.try(ctx, "pgrep -fx 'sleep 1000'") }).WithContext(ctx).ShouldNot(BeEmpty())
			busy := s.fails(ctx, "detach_disk", s.m.cid, s.disk)
			Expect(busy.Message).To(And(ContainSubstring("still in use"), ContainSubstring("sleep")))
			s.m.run(ctx, "umount --lazy /var/vcap/store")
			Expect(s.fails(ctx, "detach_disk", s.m.cid, s.disk).Message).To(And(ContainSubstring("still in use"), ContainSubstring("sleep")))
			s.m.run(ctx, "pkill -fx 'sleep 1000'; mount /dev/bosh/"+s.disk+" /var/vcap/store")
			s.intact(ctx)
		}, NodeTimeout(longTest))
	}

	It("is attached or detached, never half of it, when two processes try both at once", func(ctx context.Context) {
		s.m.detach(ctx, s.disk)
		for range 3 {
			atOnce(func() { _, _ = s.Call(ctx, "attach_disk", s.m.cid, s.disk) }, func() { _, _ = s.Call(ctx, "detach_disk", s.m.cid, s.disk) })
			s.m.attach(ctx, s.disk)
			Expect(s.m.run(ctx, "cat /var/vcap/store/mark")).To(Equal(s.disk))
			s.m.detach(ctx, s.disk)
		}
		s.m.attach(ctx, s.disk)
		s.intact(ctx)
	}, NodeTimeout(longTest))

	It("goes to another machine within a second, and back", func(ctx context.Context) {
		other := s.createMachine(ctx)
		s.m.detach(ctx, s.disk)
		other.attach(ctx, s.disk)
		Expect(other.run(ctx, checkLarge)).To(Equal(s.checksum))
		other.detach(ctx, s.disk)
		s.m.attach(ctx, s.disk)
		s.must(ctx, "delete_vm", other.cid)
		s.intact(ctx)
	}, NodeTimeout(longTest))

	It("survives the deletion of a machine that has it, and is free to attach", func(ctx context.Context) {
		s.m.detach(ctx, s.disk)
		other := s.createMachine(ctx)
		other.attach(ctx, s.disk)
		s.must(ctx, "delete_vm", other.cid)
		s.m.attach(ctx, s.disk)
		s.intact(ctx)
	}, NodeTimeout(longTest))
}

var _ = Describe("A persistent disk", Label("disks"), func() {
	for kind, properties := range map[string]map[string]any{"a Filesystem claim": onFilesystem, "a Block claim": onBlock} {
		Describe("on "+kind, extended(kind == "a Filesystem claim"), Ordered, func() {
			var s subject
			BeforeAll(func(ctx context.Context) { s.prepare(ctx, properties) }, NodeTimeout(longTest))
			isItsMachines(&s)
		})

		Describe("on "+kind+" of a node that is in trouble", extended(kind == "a Filesystem claim"), Ordered, Serial, func() {
			var s subject
			BeforeAll(func(ctx context.Context) { s.prepare(ctx, properties) }, NodeTimeout(longTest))
			survivesItsAttachment(&s)
			survivesTheKubelet(&s)
			survivesReboots(&s)
		})
	}
})

var _ = Describe("A disk that grows", Label("disks"), func() {
	kinds := map[string]map[string]any{"Filesystem": onFilesystem, "Block": onBlock}
	for from, old := range kinds {
		for to, successor := range kinds {
			It("by migration from "+from+" to "+to+" keeps its data", func(ctx context.Context) {
				w := newWorld(ctx)
				w.migrates(ctx, w.createMachine(ctx), old, successor)
			}, extended(from == "Filesystem" || to == "Block"), NodeTimeout(longTest))
		}
	}

	for mode := range kinds {
		It("by resize_disk on a "+mode+" claim has the new size and the old data", func(ctx context.Context) {
			w := newWorld(ctx)
			m := w.createMachine(ctx)
			disk := w.createDisk(ctx, 1280, map[string]any{"storage_class": embedded.CSIClass, "volume_mode": mode})
			m.attach(ctx, disk)
			checksum := m.run(ctx, fillGiB)
			m.detach(ctx, disk)
			w.must(ctx, "resize_disk", disk, 1440)
			m.attach(ctx, disk)
			Expect(m.run(ctx, checkGiB)).To(Equal(checksum))
			Expect(m.sizeMiB(ctx, disk)).To(Equal(1440))
			Expect(strconv.Atoi(m.run(ctx, "df --output=size --block-size=1M /var/vcap/store | tail -n 1 | tr -d ' '"))).To(BeNumerically(">", 1300))
			m.detach(ctx, disk)
			w.must(ctx, "delete_disk", disk)
		}, extended(mode == "Filesystem"), NodeTimeout(longTest))

		It("from a snapshot of a "+mode+" claim has the content of that moment", func(ctx context.Context) {
			w := newWorld(ctx)
			m := w.createMachine(ctx)
			properties := map[string]any{"storage_class": embedded.CSIClass, "volume_mode": mode}
			disk := w.createDisk(ctx, 1280, properties)
			m.attach(ctx, disk)
			checksum := m.run(ctx, fillGiB)
			snapshot := w.must(ctx, "snapshot_disk", disk, map[string]any{"deployment": "e2e"}).Text()
			m.run(ctx, "echo later > /var/vcap/store/later; truncate -s 0 /var/vcap/store/data")
			m.detach(ctx, disk)
			restored := w.createDisk(ctx, 1408, map[string]any{"storage_class": embedded.CSIClass, "volume_mode": mode, "snapshot": snapshot})
			m.attach(ctx, restored)
			Expect(m.run(ctx, checkGiB)).To(Equal(checksum))
			Expect(m.run(ctx, "ls /var/vcap/store")).NotTo(ContainSubstring("later"))
			Expect(m.sizeMiB(ctx, restored)).To(Equal(1408))
			m.detach(ctx, restored)
			w.must(ctx, "delete_snapshot", snapshot)
			w.must(ctx, "delete_disk", restored)
			w.must(ctx, "delete_disk", disk)
		}, Label("extended"), NodeTimeout(longTest))
	}

	It("has all of its room when it is attached, where that is asked for", func(ctx context.Context) {
		w := newWorld(ctx)
		m, disk := w.createMachine(ctx), w.createDisk(ctx, 64, map[string]any{"reserve": true})
		m.attach(ctx, disk)
		taken, err := w.embedded.ControlPlane.Kubectl(ctx, "exec", "-n", w.namespace, disk+"-attachment", "--",
			"bash", "-c", "echo $(($(stat -c '%b * %B' /volume/disk.img) >> 20))")
		Expect(err).NotTo(HaveOccurred())
		Expect(strconv.Atoi(strings.TrimSpace(taken))).To(BeNumerically(">=", 64))
	}, NodeTimeout(longTest))

	It("from a snapshot of an xfs disk is used beside its source on one node", func(ctx context.Context) {
		w := newWorld(ctx)
		m, other := w.createMachine(ctx), w.createMachine(ctx)
		disk := w.createDisk(ctx, 400, map[string]any{"storage_class": embedded.CSIClass, "filesystem": "xfs"})
		m.attach(ctx, disk)
		m.run(ctx, "echo then > /var/vcap/store/mark")
		snapshot := w.must(ctx, "snapshot_disk", disk, map[string]any{}).Text()
		restored := w.createDisk(ctx, 512, map[string]any{"storage_class": embedded.CSIClass, "filesystem": "xfs", "snapshot": snapshot})
		other.attach(ctx, restored)
		Expect(other.run(ctx, "cat /var/vcap/store/mark")).To(Equal("then"))
		Expect(other.run(ctx, "findmnt --noheadings --output FSTYPE /var/vcap/store")).To(Equal("xfs"))
		other.detach(ctx, restored)
		m.detach(ctx, disk)
		w.must(ctx, "delete_snapshot", snapshot)
		w.must(ctx, "delete_disk", restored)
		w.must(ctx, "delete_disk", disk)
	}, NodeTimeout(longTest))
})

// sizeMiB is the size of the disk's device in the machine.
func (m *machine) sizeMiB(ctx context.Context, disk string) int {
	GinkgoHelper()
	bytes, err := strconv.Atoi(m.run(ctx, "blockdev --getsize64 /dev/bosh/"+disk))
	Expect(err).NotTo(HaveOccurred())
	return bytes >> 20
}

// extended labels those tests that CI leaves out, because others like them say nearly as much.
func extended(left bool) Labels {
	if left {
		return Label("extended")
	}
	return nil
}

// migrates lets the agent move 1 GiB from one disk to another, larger one.
func (w *world) migrates(ctx context.Context, m *machine, old, successor map[string]any) {
	GinkgoHelper()
	first := w.createDisk(ctx, 1280, old)
	m.attach(ctx, first)
	checksum := m.run(ctx, fillGiB)
	second := w.createDisk(ctx, 1408, successor)
	m.attach(ctx, second)
	m.tell(ctx, "migrate_disk", first, second)
	m.tell(ctx, "remove_persistent_disk", first)
	w.must(ctx, "detach_disk", m.cid, first)
	w.must(ctx, "delete_disk", first)
	Expect(m.run(ctx, checkGiB)).To(Equal(checksum))
	Expect(m.sizeMiB(ctx, second)).To(Equal(1408))
	m.detach(ctx, second)
	w.must(ctx, "delete_disk", second)
}
