//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/test/embedded"
)

// folder returns what is mounted on the node in the machine's folder, by mount point.
func (m *machine) folder(ctx context.Context) []string {
	GinkgoHelper()
	out, err := m.w.node.Shell(ctx, "findmnt --noheadings --list --output TARGET")
	Expect(err).NotTo(HaveOccurred())
	found := []string{}
	for line := range strings.Lines(out) {
		if strings.Contains(line, "/"+m.w.namespace+"/"+m.cid+"/") {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

// killHolder kills the attachment's process.
func (w *world) killHolder(ctx context.Context, disk string) {
	GinkgoHelper()
	for _, pid := range w.holding(ctx, disk) {
		_, err := w.node.Shell(ctx, "kill -9 "+pid)
		Expect(err).NotTo(HaveOccurred())
	}
}

var _ = Describe("A disk that appears as a directory", Label("disks", "extended"), Serial, func() {
	// The volumes of the default class are folders of one filesystem; those of the CSI driver are
	// filesystems of their own.
	for kind, properties := range map[string]map[string]any{
		"a folder":                {"attach": "bind"},
		"a filesystem of its own": {"attach": "bind", "storage_class": embedded.CSIClass},
	} {
		for initProgram, stemcell := range map[string]string{"runit": "E2E_STEMCELL", "systemd": "E2E_STEMCELL_SYSTEMD"} {
			Describe(fmt.Sprintf("on %s, in a machine with %s", kind, initProgram), Ordered, func() {
				var (
					w        *world
					m        *machine
					disk     string
					checksum string
				)
				BeforeAll(func(ctx context.Context) {
					w = newWorld(ctx)
					m = w.createMachineFrom(ctx, os.Getenv(stemcell), map[string]any{})
					disk = w.createDisk(ctx, 64, properties)
					m.attach(ctx, disk)
					checksum = m.run(ctx, fillDisk)
					m.detach(ctx, disk)
				}, NodeTimeout(longTest))

				// intact checks the data, and that the disk can be taken away and given back.
				intact := func(ctx context.Context) {
					GinkgoHelper()
					Expect(m.run(ctx, checkDisk)).To(Equal(checksum))
					Expect(m.folder(ctx)).To(HaveLen(1), "mounts stack")
					m.detach(ctx, disk)
					Expect(m.folder(ctx)).To(BeEmpty())
					m.attach(ctx, disk)
					Expect(m.run(ctx, checkDisk)).To(Equal(checksum))
				}

				It("is the same after each attachment, which leaves nothing behind and touches nothing", func(ctx context.Context) {
					before, mounts := m.identity(ctx), w.mounts(ctx)
					for range 3 {
						m.attach(ctx, disk)
						Expect(m.run(ctx, checkDisk)).To(Equal(checksum))
						Expect(m.tell(ctx, "list_disk")).To(ContainSubstring(disk))
						m.detach(ctx, disk)
					}
					Expect(m.identity(ctx)).To(Equal(before))
					Eventually(w.mounts).WithContext(ctx).Should(Equal(mounts))
					Expect(m.folder(ctx)).To(BeEmpty())
					Expect(m.run(ctx, "ls -A /dev/bosh")).To(BeEmpty())
				}, NodeTimeout(longTest))

				It("stays, once, when its attachment's process is killed, again and again", func(ctx context.Context) {
					m.attach(ctx, disk)
					before := m.identity(ctx)
					for range 3 {
						restarts := w.attachment(ctx, disk).Status.ContainerStatuses[0].RestartCount
						w.killHolder(ctx, disk)
						w.restarted(ctx, disk+"-attachment", restarts)
						Expect(m.run(ctx, checkDisk)).To(Equal(checksum))
						Expect(m.folder(ctx)).To(HaveLen(1), "mounts stack")
					}
					Expect(m.identity(ctx)).To(Equal(before))
					intact(ctx)
				}, NodeTimeout(longTest))

				It("stays when its attachment is deleted by someone else, until it is free", func(ctx context.Context) {
					Expect(w.cluster.CoreV1().Pods(w.namespace).Delete(ctx, disk+"-attachment", metav1.DeleteOptions{})).To(Succeed())
					Expect(m.run(ctx, checkDisk)).To(Equal(checksum))
					intact(ctx)
				}, NodeTimeout(longTest))

				It("is bound again before anything else when the machine's container and the attachment restart at once", func(ctx context.Context) {
					w.killHolder(ctx, disk)
					m.killInit(ctx)
					m.awaitAgent(ctx)
					Expect(m.run(ctx, checkDisk)).To(Equal(checksum))
					intact(ctx)
				}, NodeTimeout(longTest))

				It("stays when the kubelet restarts", func(ctx context.Context) {
					before := m.identity(ctx)
					Expect(w.node.RestartKubelet(ctx)).To(Succeed())
					Eventually(func() error { _, err := m.try(ctx, "true"); return err }).WithContext(ctx).Should(Succeed()) // it knows its Pods again
					Expect(m.identity(ctx)).To(Equal(before))
					intact(ctx)
				}, NodeTimeout(longTest))

				It("is not detached while anything has it mounted or works in it, even after a lazy unmount", func(ctx context.Context) {
					refused := func(words ...string) {
						GinkgoHelper()
						message := w.fails(ctx, "detach_disk", m.cid, disk).Message
						for _, word := range append(words, "still in use") {
							Expect(message).To(ContainSubstring(word))
						}
						Expect(m.folder(ctx)).To(HaveLen(1))
					}
					refused("has it mounted at /var/vcap/store")
					m.run(ctx, "mkdir -p /tmp/elsewhere && mount --bind /var/vcap/store/ /tmp/elsewhere && umount /var/vcap/store")
					refused("has it mounted at /tmp/elsewhere")
					m.run(ctx, "mount /dev/bosh/"+disk+" /var/vcap/store && umount /tmp/elsewhere")
					m.run(ctx, "cd / && (setsid bash -c 'exec 7</var/vcap/store/data; echo $$ > /var/vcap/data/holder; exec sleep 1000' >/dev/null 2>&1 &)")
					Eventually(func() (string, error) { return m.try(ctx, "cat /var/vcap/data/holder") }).WithContext(ctx).ShouldNot(BeEmpty())
					m.run(ctx, "/bin/umount --lazy /var/vcap/store")
					refused("(sleep) uses")
					m.run(ctx, "kill $(cat /var/vcap/data/holder); rm /var/vcap/data/holder; mount /dev/bosh/"+disk+" /var/vcap/store")
					intact(ctx)
				}, NodeTimeout(longTest))

				It("survives the deletion of a machine that has it", func(ctx context.Context) {
					w.must(ctx, "delete_vm", m.cid)
					Expect(m.folder(ctx)).To(BeEmpty())
					other := w.createMachineFrom(ctx, os.Getenv(stemcell), map[string]any{})
					other.attach(ctx, disk)
					Expect(other.run(ctx, checkDisk)).To(Equal(checksum))
					other.detach(ctx, disk)
				}, NodeTimeout(longTest))
			})
		}
	}
})
