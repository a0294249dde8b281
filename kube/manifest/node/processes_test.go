package node_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/kube/manifest/node"
)

// Mounts as /proc/PID/mountinfo has them.
const (
	inMachineA = "90 1 0:25 /bosh-kubernetes-cpi/bosh/agent-a /dev/bosh rw"
	inMachineB = "91 1 0:25 /bosh-kubernetes-cpi/bosh/agent-b /dev/bosh rw"
)

// process pretends that the node has one: mounts are lines of its mountinfo.
func (w world) process(number, parent int, name string, mounts ...string) {
	GinkgoHelper()
	folder := fmt.Sprintf("proc/%d/", number)
	Expect(os.RemoveAll(w.path(folder))).To(Succeed())
	w.write(folder+"status", fmt.Sprintf("Name:\t%s\nPPid:\t%d\n", name, parent))
	w.write(folder+"comm", name+"\n")
	w.write(folder+"mountinfo", strings.Join(append(mounts, ""), "\n"))
	w.folder(folder + "ns")
	w.folder(folder + "fd")
	Expect(os.Symlink(fmt.Sprintf("mnt:[%d]", number), w.path(folder+"ns/mnt"))).To(Succeed())
}

var _ = Describe("The node's processes", func() {
	var w world
	BeforeEach(func() {
		w = newWorld()
		w.process(1, 0, "systemd", "20 1 8:1 / / rw")
		w.process(100, 1, "containerd-shim")
		w.process(200, 100, "runsvdir", inMachineA, "92 1 8:16 / /var/vcap/store rw", "93 1 8:16 / /elsewhere rw")
		w.process(201, 200, "container", "94 1 0:40 / / rw")
		w.process(202, 201, "in a container", "95 1 8:16 / /data rw")
		w.process(300, 100, "systemd", inMachineB)
		w.process(400, 1, "like one", "96 1 0:25 /bosh-kubernetes-cpi/bosh/agent-a /dev/bosh/disk-1 rw")
		w.folder("proc/500") // one that is ending
	})

	It("are a machine's when they see its folder, or descend from one that does", func() {
		_, said := w.call("processes", "machine_processes bosh/agent-a")
		Expect(said).To(Equal("200\n201\n202\n"))
		_, said = w.call("processes", "machine_processes bosh/agent")
		Expect(said).To(BeEmpty())
	})

	It("are told with their machines", func() {
		_, said := w.call("processes", "processes all")
		Expect(said).To(Equal("1 -\n100 -\n200 bosh/agent-a\n201 bosh/agent-a\n202 bosh/agent-a\n300 bosh/agent-b\n400 -\n"))
	})

	It("that have a device mounted are told with the place", func() {
		_, said := w.call("processes", "processes 8:16")
		Expect(said).To(Equal("200 bosh/agent-a /var/vcap/store\n202 bosh/agent-a /data\n"))
	})
})

var _ = Describe("A device", func() {
	var w world
	BeforeEach(func() {
		w = newWorld()
		w.device("dev/volume", 8, 16, mib, "ext4 - 1048576\n")
	})

	const libraries = "device processes users"
	usedByOthers := func() bool {
		GinkgoHelper()
		status, said := w.call(libraries, `used_by_others "$root/dev/volume"`, "VM=bosh/agent-a")
		Expect(said).To(BeEmpty())
		return status == 0
	}

	It("that is free is used by nobody", func() {
		Expect(usedByOthers()).To(BeFalse())
	})

	It("that the machine alone has mounted, containers in it included, is not used by others", func() {
		w.process(200, 1, "runsvdir", inMachineA, "92 1 8:16 / /var/vcap/store rw")
		w.process(201, 200, "container", "93 1 8:16 / /data rw")
		w.know("busy/8:16", "")
		Expect(usedByOthers()).To(BeFalse())
	})

	DescribeTable("is used by others when it is busy", func(processes func()) {
		w.know("busy/8:16", "")
		processes()
		Expect(usedByOthers()).To(BeTrue())
	},
		Entry("and mounted nowhere to be seen", func() {}),
		Entry("in another machine", func() { w.process(300, 1, "init", inMachineB, "92 1 8:16 / /data rw") }),
		Entry("on the node itself", func() { w.process(1, 0, "systemd", "92 1 8:16 / /mnt rw") }),
		Entry("in this machine and in another one", func() {
			w.process(200, 1, "init", inMachineA, "92 1 8:16 / /var/vcap/store rw")
			w.process(300, 1, "init", inMachineB, "92 1 8:16 / /var/vcap/store rw")
		}),
	)

	It("has users that are named once per mount namespace", func() {
		for _, process := range []int{200, 201} {
			w.process(process, 1, "monit", "92 1 8:16 / /var/vcap/store rw")
			Expect(os.Remove(w.path(fmt.Sprintf("proc/%d/ns/mnt", process)))).To(Succeed())
			Expect(os.Symlink("mnt:[1]", w.path(fmt.Sprintf("proc/%d/ns/mnt", process)))).To(Succeed())
		}
		w.process(300, 1, "nested", "92 1 8:16 / /data rw")
		_, said := w.call(libraries, `users "$root/dev/volume"`)
		Expect(said).To(Equal("process 200 (monit) has it mounted at /var/vcap/store\nprocess 300 (nested) has it mounted at /data\n"))
	})

	// Here the device is that on which the test's own folder lies.
	It("has users that work in its filesystem, or have a file of it open, with no mount of it", func() {
		var here syscall.Stat_t
		Expect(syscall.Stat(w.root, &here)).To(Succeed())
		w.process(200, 1, "works")
		Expect(os.Symlink(w.path("volume"), w.path("proc/200/cwd"))).To(Succeed())
		w.process(201, 1, "reads")
		w.write("volume/file", "")
		Expect(os.Symlink(w.path("volume/file"), w.path("proc/201/fd/7"))).To(Succeed())
		w.process(202, 1, "elsewhere")
		Expect(os.Symlink("/proc", w.path("proc/202/cwd"))).To(Succeed())
		_, said := w.call(libraries, fmt.Sprintf("holders %d:%d", here.Dev>>8&0xfff, here.Dev&0xff|here.Dev>>12&0xfff00))
		Expect(said).To(Equal(fmt.Sprintf("process 200 (works) uses %s\nprocess 201 (reads) uses %s\n", w.path("volume"), w.path("volume/file"))))
	})

	It("is what has a device's node, and nothing else", func() {
		w.write("dev/file", "b 8")
		for _, name := range []string{"dev/file", "dev", "dev/none"} {
			status, _ := w.call("device", `is_device "$root/`+name+`"`)
			Expect(status).To(Equal(1), name)
		}
		_, said := w.call("device", `numbers "$root/dev/volume"`)
		Expect(said).To(Equal("8:16\n"))
	})

	It("is opened exclusively, and a path taken away, only while it is free", func() {
		w.write("devices/disk-1", "")
		w.know("busy/8:16", "")
		status, said := w.call("device", `exclusively "$root/dev/volume" "$root/devices/disk-1"`)
		Expect(status).To(Equal(1))
		Expect(said).To(BeEmpty())
		Expect(w.exists("devices/disk-1")).To(BeTrue())
		w.forget("busy/8:16")
		status, _ = w.call("device", `exclusively "$root/dev/volume" "$root/devices/disk-1"`)
		Expect(status).To(BeZero())
		Expect(w.exists("devices/disk-1")).To(BeFalse())
		Expect(w.calls()).To(Equal([]string{"exclusively /dev/volume", "exclusively /dev/volume"}))
	})

	It("that cannot be opened at all is an error, and not in use", func() {
		status, said := w.call("device", `exclusively "$root/dev/none"`)
		Expect(status).To(Equal(1))
		Expect(said).To(ContainSubstring("cannot be opened: No such file or directory"))
	})
})

var _ = Describe("An attachment of a device in use", func() {
	var w world
	BeforeEach(func() {
		w = newWorld()
		w.device("dev/volume", 8, 16, 9*mib, "xfs of-the-source 8388608\n")
		w.know("busy/8:16", "")
	})

	It("fails while others use it, with nothing changed, and names them", func() {
		w.process(300, 1, "postgres", inMachineB, "92 1 8:16 / /var/vcap/store rw")
		status, said := w.run(node.Hold(), asXFS...)
		Expect(status).To(Equal(1))
		Expect(said).To(ContainSubstring("disk disk-1 is still in use outside of VM bosh/agent-a: process 300 (postgres) has it mounted at /var/vcap/store"))
		Expect(w.calls()).To(Equal(append(append([]string{readSize}, readMarks(9)...), "blkid -p /dev/volume", "exclusively /dev/volume")))
		Expect(w.exists("devices/disk-1")).To(BeFalse())
	})

	It("publishes it as it is while its own machine uses it", func() {
		w.process(200, 1, "runsvdir", inMachineA, "92 1 8:16 / /var/vcap/store rw")
		w.hold(asXFS)
		Expect(w.disk("8:16")).To(Equal("xfs of-the-source 8388608"))
		Expect(w.calls()).To(Equal(append(append([]string{readSize}, readMarks(9)...),
			"blkid -p /dev/volume", "exclusively /dev/volume",
			readType+"/dev/volume", readUUID+"/dev/volume", "exclusively /dev/volume",
			"exclusively /dev/volume", makeNode+"8 16",
		)))
	})
})
