//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// Disks that a machine has beside the one at /var/vcap/store, and formats itself: dynamic disks, which a director's
// clients ask for while the machine runs, and those of an instance group with several persistent disks.
var _ = DescribeTableSubtree("Under a director a machine with several disks", Label("director"), func(stemcell string) {
	It("is given dynamic disks all at once, loses them in any order, and has the others after a restart", func(ctx context.Context) {
		d := newDirected(ctx, stemcell)
		m := d.instance(ctx)
		store := d.createDisk(ctx, 64, onFilesystem)
		m.attach(ctx, store)
		m.run(ctx, "echo kept >/var/vcap/store/file")
		disks := []string{d.createDisk(ctx, 64, onFilesystem), d.createDisk(ctx, 96, onBlock), d.createDisk(ctx, 128, onFilesystem)}
		mounted, raw, formatted := disks[0], disks[1], disks[2]
		atOnce(func() { m.giveDynamic(ctx, mounted) }, func() { m.giveDynamic(ctx, raw) }, func() { m.giveDynamic(ctx, formatted) })
		for i, disk := range disks {
			Expect(m.run(ctx, "blockdev --getsize64 "+dynamicLink(disk))).To(Equal(fmt.Sprint((64 + 32*i) << 20)))
		}

		By("what jobs do with them: one has its filesystem, one gets none, one gets its own")
		m.run(ctx, "mkdir -p /mnt/mounted && mount "+dynamicLink(mounted)+" /mnt/mounted && echo mounted >/mnt/mounted/file && umount /mnt/mounted")
		checksum := m.run(ctx, "dd if=/dev/urandom of="+dynamicLink(raw)+" bs=1M count=8 conv=fsync status=none && "+checkRaw(raw))
		m.run(ctx, "mkfs.ext4 -q -F "+dynamicLink(formatted)+" && mkdir -p /mnt/own && mount "+dynamicLink(formatted)+
			" /mnt/own && echo own >/mnt/own/file && sync -f /mnt/own")
		have := func(left ...string) {
			GinkgoHelper()
			Expect(strings.Fields(m.run(ctx, "ls /var/vcap/data/dynamic_disks"))).To(ConsistOf(left))
			Expect(strings.Fields(m.run(ctx, "ls /dev/bosh"))).To(ConsistOf(append(left, store)))
			var known []string
			Expect(json.Unmarshal(d.must(ctx, "get_disks", m.cid).Result, &known)).To(Succeed())
			Expect(known).To(ConsistOf(append(left, store)))
			Expect(m.run(ctx, "cat /var/vcap/store/file")).To(Equal("kept"))
			Expect(m.tell(ctx, "list_disk")).To(MatchJSON(`["` + store + `"]`))
		}
		have(mounted, raw, formatted)
		d.killHolder(ctx, raw)
		d.restarted(ctx, raw+"-attachment", 0)
		Expect(m.run(ctx, checkRaw(raw))).To(Equal(checksum))

		By("the one in use is not taken, the second one is")
		Expect(d.fails(ctx, "detach_disk", m.cid, formatted).Message).To(ContainSubstring("still in use"))
		Expect(d.attachment(ctx, raw).Status.ContainerStatuses[0].State.Running).NotTo(BeNil())
		m.takeDynamic(ctx, raw)
		have(mounted, formatted)

		By("a killed PID 1")
		m.killInit(ctx)
		m.awaitAgent(ctx)
		have(mounted, formatted)
		Expect(m.run(ctx, "mount "+dynamicLink(mounted)+" /mnt && cat /mnt/file && umount /mnt")).To(Equal("mounted"))
		Expect(m.run(ctx, "mount "+dynamicLink(formatted)+" /mnt && cat /mnt/file && umount /mnt")).To(Equal("own"))

		By("what was written without a filesystem, when it is given again")
		m.giveDynamic(ctx, raw)
		Expect(m.run(ctx, checkRaw(raw))).To(Equal(checksum))
		d.must(ctx, "reboot_vm", m.cid)
		m.awaitAgent(ctx)
		have(mounted, raw, formatted)
		Expect(m.run(ctx, checkRaw(raw))).To(Equal(checksum))

		By("its end, before which the director takes them all")
		for _, disk := range []string{formatted, mounted, raw} {
			m.takeDynamic(ctx, disk)
			d.must(ctx, "delete_disk", disk)
		}
		have()
	}, extended(stemcell == withSystemd), NodeTimeout(longTest))
},
	Entry("with runit", "E2E_STEMCELL"),
	Entry("with systemd", withSystemd),
)

var _ = Describe("The disks of an instance group with several", Label("disks", "extended"), Serial, func() {
	DescribeTable("have their names, and are there before any job when the machine's node boots", func(ctx context.Context, stemcell string) {
		w := newWorld(ctx)
		m := w.createMachineFrom(ctx, os.Getenv(stemcell), map[string]any{})
		associations := []map[string]any{}
		for name, properties := range map[string]map[string]any{"log": onFilesystem, "data": onBlock} {
			disk := w.createDisk(ctx, 64, properties)
			var hint map[string]any
			Expect(json.Unmarshal(w.must(ctx, "attach_disk", m.cid, disk).Result, &hint)).To(Succeed())
			m.tell(ctx, "add_persistent_disk", disk, hint)
			associations = append(associations, map[string]any{"name": name, "cid": disk})
		}
		m.tell(ctx, "update_settings", map[string]any{"disk_associations": associations, "trusted_certs": ""})
		const log, data = "/var/vcap/instance/disks/log", "/var/vcap/instance/disks/data"
		m.run(ctx, "echo of the log | dd of="+log+" conv=fsync status=none; echo of the data | dd of="+data+" conv=fsync status=none")
		m.run(ctx, strings.Replace(keeper, "mountpoint -q /var/vcap/store", "test -b "+log+" -a -b "+data, 1))
		m.awaitJob(ctx)
		before := m.restarts(ctx)

		Expect(w.powerCut(ctx)).To(Succeed())
		w.restarted(ctx, m.cid, before)
		m.awaitAgent(ctx)
		m.awaitJob(ctx)
		Expect(strings.Fields(m.run(ctx, "cat /var/vcap/data/keeper.starts"))).To(Equal([]string{"with", "with"}))
		Expect(m.run(ctx, "head -n 1 "+log+"; head -n 1 "+data)).To(Equal("of the log\nof the data"))
	}, stemcellKinds())
})

// dynamicLink is where a job finds a dynamic disk.
func dynamicLink(disk string) string { return "/var/vcap/data/dynamic_disks/" + disk }

// checkRaw reads what is on a dynamic disk without a filesystem, from the disk.
func checkRaw(disk string) string {
	return "dd if=" + dynamicLink(disk) + " bs=1M count=8 iflag=direct status=none | b2sum"
}

// giveDynamic is what the director does when a client asks for a dynamic disk, or for it again.
func (m *machine) giveDynamic(ctx context.Context, disk string) {
	GinkgoHelper()
	var hint map[string]any
	Expect(json.Unmarshal(m.w.must(ctx, "attach_disk", m.cid, disk).Result, &hint)).To(Succeed())
	link := dynamicLink(disk)
	m.tellDynamic(ctx, fmt.Sprintf("mkdir -p $(dirname %s) && test -b %s && ln -sfn %[2]s %[1]s", link, hint["path"]), "add_dynamic_disk", disk, hint)
}

// takeDynamic is what the director does when a client gives a dynamic disk back.
func (m *machine) takeDynamic(ctx context.Context, disk string) {
	GinkgoHelper()
	m.tellDynamic(ctx, "rm -f "+dynamicLink(disk), "remove_dynamic_disk", disk)
	m.w.must(ctx, "detach_disk", m.cid, disk)
}

// tellDynamic tells the agent of a dynamic disk. Agents know these messages from 2.834 on: for an older one what they
// mean is done here, a link to the device that the hint names.
func (m *machine) tellDynamic(ctx context.Context, meaning, method string, arguments ...any) {
	GinkgoHelper()
	_, err := m.agent.Call(ctx, method, arguments...)
	if err != nil && strings.Contains(err.Error(), "unknown message "+method) {
		AddReportEntry("the agent does not know " + method)
		m.run(ctx, meaning)
		return
	}
	Expect(err).NotTo(HaveOccurred())
}
