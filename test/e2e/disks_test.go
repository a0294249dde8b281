//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/director"
	"bosh-kubernetes-cpi/test/embedded"
)

// The kinds of claims that disks are on.
var (
	onFilesystem = map[string]any{}
	onBlock      = map[string]any{"storage_class": embedded.CSIClass, "volume_mode": "Block"}
)

// cycles of attaching and detaching, for each kind of claim.
const cycles = 10

// holding answers the process ids of the attachment's containers that hold this disk.
func (w *world) holding(ctx context.Context, disk string) []string {
	GinkgoHelper()
	out, err := embedded.Run(ctx, "bash", "-c", `for p in /proc/[0-9]*; do
		tr '\0' '\n' <"$p/environ" 2>/dev/null | grep -qx "DISK=`+disk+`" && tr '\0' ' ' <"$p/cmdline" | grep -q "attachment hold" && echo "${p#/proc/}"; done; true`)
	Expect(err).NotTo(HaveOccurred())
	return strings.Fields(out)
}

// init answers the process id of the machine's PID 1 on the node.
func (m *machine) init(ctx context.Context) string {
	GinkgoHelper()
	out, err := embedded.Run(ctx, "bash", "-c", `for p in /proc/[0-9]*; do
		grep -qs "/`+m.w.namespace+`/`+m.cid+` /dev/bosh " "$p/mountinfo" && [[ $(awk '/^NSpid:/ { print $NF }' "$p/status") == 1 ]] && echo "${p#/proc/}"; done; true`)
	Expect(err).NotTo(HaveOccurred())
	Expect(strings.Fields(out)).To(HaveLen(1))
	return strings.TrimSpace(out)
}

// restarted waits until the Pod's containers have restarted more than before times and are ready.
func (w *world) restarted(ctx context.Context, pod string, before int32) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		found, err := w.cluster.CoreV1().Pods(w.namespace).Get(ctx, pod, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(found.Status.ContainerStatuses).To(HaveEach(And(HaveField("RestartCount", BeNumerically(">", before)), HaveField("Ready", BeTrue()))))
	}).WithContext(ctx).Should(Succeed())
}

const (
	fillDisk  = `head -c 1048576 /dev/urandom > /var/vcap/store/data && sync /var/vcap/store/data && sha256sum < /var/vcap/store/data`
	checkDisk = `mountpoint -q /var/vcap/store && sha256sum < /var/vcap/store/data`
)

var _ = Describe("A persistent disk", Label("disks"), func() {
	for kind, properties := range map[string]map[string]any{"a Filesystem claim": onFilesystem, "a Block claim": onBlock} {
		Describe("on "+kind, Ordered, func() {
			var (
				w        *world
				m        *machine
				disk     string
				checksum string
			)
			BeforeAll(func(ctx context.Context) {
				w = newWorld(ctx)
				m = w.createMachine(ctx)
				disk = w.createDisk(ctx, 64, properties)
				m.attach(ctx, disk)
				checksum = m.run(ctx, fillDisk)
				m.detach(ctx, disk)
			}, NodeTimeout(longTest))

			// intact checks the data, and that the disk can be taken away and given back.
			intact := func(ctx context.Context) {
				GinkgoHelper()
				Expect(m.run(ctx, checkDisk)).To(Equal(checksum))
				m.detach(ctx, disk)
				m.attach(ctx, disk)
				Expect(m.run(ctx, checkDisk)).To(Equal(checksum))
			}

			It(fmt.Sprintf("is the same after %d attachments, which leave nothing behind", cycles), func(ctx context.Context) {
				before, loops, mounts := m.identity(ctx), w.loops(ctx), w.mounts(ctx)
				for range cycles {
					w.must(ctx, "attach_disk", m.cid, disk)
					Expect(m.run(ctx, "mount /dev/bosh/"+disk+" /var/vcap/store && sha256sum < /var/vcap/store/data && umount /var/vcap/store")).To(Equal(checksum))
					w.must(ctx, "detach_disk", m.cid, disk)
				}
				Expect(m.identity(ctx)).To(Equal(before))
				// The kubelet unmounts a volume a moment after its Pod is gone.
				Eventually(func() int { return strings.Count(w.loops(ctx), "\n") }).Should(BeNumerically("<=", strings.Count(loops, "\n")))
				Eventually(w.mounts).WithContext(ctx).Should(Equal(mounts))
				Expect(m.run(ctx, "ls -A /dev/bosh")).To(BeEmpty())
			}, NodeTimeout(2*longTest))

			It("stays when its attachment's process is killed, again and again", func(ctx context.Context) {
				m.attach(ctx, disk)
				before, loops := m.identity(ctx), w.loops(ctx)
				for range 3 {
					restarts := w.attachment(ctx, disk).Status.ContainerStatuses[0].RestartCount
					for _, pid := range w.holding(ctx, disk) {
						_, err := embedded.Run(ctx, "kill", "-9", pid)
						Expect(err).NotTo(HaveOccurred())
					}
					w.restarted(ctx, disk+"-attachment", restarts)
					Expect(m.run(ctx, checkDisk)).To(Equal(checksum))
				}
				Expect(strings.Count(w.loops(ctx), "\n")).To(BeNumerically("<=", strings.Count(loops, "\n")), "loop devices stack")
				Expect(m.identity(ctx)).To(Equal(before))
				intact(ctx)
			}, NodeTimeout(longTest))

			It("stays when its attachment is deleted by someone else, until it is free", func(ctx context.Context) {
				Expect(w.cluster.CoreV1().Pods(w.namespace).Delete(ctx, disk+"-attachment", metav1.DeleteOptions{})).To(Succeed())
				Expect(m.run(ctx, checkDisk+" && touch /var/vcap/store/more && sync")).To(ContainSubstring(checksum))
				other := w.fails(ctx, "attach_disk", w.createMachine(ctx).cid, disk)
				Expect(other.Message).To(ContainSubstring(disk))
				intact(ctx)
			}, NodeTimeout(longTest))

			It("is mounted again before anything else when the machine's container restarts", func(ctx context.Context) {
				restarts := m.pod(ctx).Status.ContainerStatuses[0].RestartCount
				_, err := embedded.Run(ctx, "kill", "-9", m.init(ctx))
				Expect(err).NotTo(HaveOccurred())
				w.restarted(ctx, m.cid, restarts)
				m.awaitAgent(ctx)
				Expect(m.run(ctx, checkDisk)).To(Equal(checksum))
				intact(ctx)
			}, NodeTimeout(longTest))

			It("stays when the kubelet restarts", func(ctx context.Context) {
				before := m.identity(ctx)
				Expect(w.embedded.Nodes[0].Kubelet().Stop()).To(Succeed())
				Expect(w.embedded.Nodes[0].StartKubelet(ctx)).To(Succeed())
				Expect(m.identity(ctx)).To(Equal(before))
				intact(ctx)
			}, NodeTimeout(longTest))

			It("is not detached while a process holds a file, even after a lazy unmount", func(ctx context.Context) {
				m.run(ctx, "cd / && (setsid bash -c 'exec 7</var/vcap/store/data; echo $$ > /var/vcap/data/holder; exec sleep 1000' >/dev/null 2>&1 &)")
				Eventually(func() (string, error) { return m.try(ctx, "cat /var/vcap/data/holder") }).WithContext(ctx).ShouldNot(BeEmpty())
				busy := w.fails(ctx, "detach_disk", m.cid, disk)
				Expect(busy.Message).To(And(ContainSubstring("still in use"), ContainSubstring("sleep")))
				m.run(ctx, "umount --lazy /var/vcap/store")
				Expect(w.fails(ctx, "detach_disk", m.cid, disk).Message).To(And(ContainSubstring("still in use"), ContainSubstring("sleep")))
				m.run(ctx, "kill $(cat /var/vcap/data/holder); rm /var/vcap/data/holder; mount /dev/bosh/"+disk+" /var/vcap/store")
				intact(ctx)
			}, NodeTimeout(longTest))

			It("is attached or detached, never half of it, when two processes try both at once", func(ctx context.Context) {
				m.detach(ctx, disk)
				for range 3 {
					done := make(chan director.Response, 2)
					for _, method := range []string{"attach_disk", "detach_disk"} {
						go func() {
							defer GinkgoRecover()
							response, err := w.Call(ctx, method, m.cid, disk)
							Expect(err).NotTo(HaveOccurred())
							done <- response
						}()
					}
					<-done
					<-done
					m.attach(ctx, disk)
					Expect(m.run(ctx, checkDisk)).To(Equal(checksum))
					m.detach(ctx, disk)
				}
				m.attach(ctx, disk)
			}, NodeTimeout(longTest))

			It("goes to another machine at once, and survives the deletion of a machine that has it", func(ctx context.Context) {
				m.detach(ctx, disk)
				other := w.createMachine(ctx)
				other.attach(ctx, disk)
				Expect(other.run(ctx, checkDisk)).To(Equal(checksum))
				w.must(ctx, "delete_vm", other.cid)
				m.attach(ctx, disk)
				intact(ctx)
			}, NodeTimeout(longTest))
		})
	}
})

var _ = Describe("A disk that grows", Label("disks"), func() {
	kinds := map[string]map[string]any{"Filesystem": onFilesystem, "Block": onBlock}
	for from, old := range kinds {
		for to, successor := range kinds {
			It("by migration from "+from+" to "+to+" keeps its data", func(ctx context.Context) {
				w := newWorld(ctx)
				m := w.createMachine(ctx)
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
			}, NodeTimeout(longTest))
		}
	}

	for kind, mode := range map[string]string{"Filesystem": "Filesystem", "Block": "Block"} {
		It("by resize_disk on a "+kind+" claim has the new size and the old data", func(ctx context.Context) {
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
		}, NodeTimeout(longTest))

		It("from a snapshot of a "+kind+" claim has the content of that moment", func(ctx context.Context) {
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
		}, NodeTimeout(longTest))
	}
})

// sizeMiB is the size of the disk's device in the machine.
func (m *machine) sizeMiB(ctx context.Context, disk string) int {
	GinkgoHelper()
	bytes, err := strconv.Atoi(m.run(ctx, "blockdev --getsize64 /dev/bosh/"+disk))
	Expect(err).NotTo(HaveOccurred())
	return bytes >> 20
}
