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
	inVMA = "90 1 0:25 /bosh-kubernetes-cpi/bosh/agent-a /dev/bosh rw"
	inVMB = "91 1 0:25 /bosh-kubernetes-cpi/bosh/agent-b /dev/bosh rw"
)

// addProcess pretends that the node has one: mounts are lines of its mountinfo.
func (w fakeRoot) addProcess(number, parent int, name string, mounts ...string) {
	GinkgoHelper()
	folder := fmt.Sprintf("proc/%d/", number)
	Expect(os.RemoveAll(w.path(folder))).To(Succeed())
	w.write(folder+"status", fmt.Sprintf("Name:\t%s\nPPid:\t%d\n", name, parent))
	w.write(folder+"comm", name+"\n")
	w.write(folder+"mountinfo", strings.Join(append(mounts, ""), "\n"))
	w.mkdir(folder + "ns")
	w.mkdir(folder + "fd")
	Expect(os.Symlink(fmt.Sprintf("mnt:[%d]", number), w.path(folder+"ns/mnt"))).To(Succeed())
}

var _ = Describe("The node's processes", func() {
	var w fakeRoot
	BeforeEach(func() {
		w = newFakeRoot()
		w.addProcess(1, 0, "systemd", "20 1 8:1 / / rw")
		w.addProcess(100, 1, "containerd-shim")
		w.addProcess(200, 100, "runsvdir", inVMA, "92 1 8:16 / /var/vcap/store rw", "93 1 8:16 / /elsewhere rw")
		w.addProcess(201, 200, "container", "94 1 0:40 / / rw")
		w.addProcess(202, 201, "in a container", "95 1 8:16 / /data rw")
		w.addProcess(300, 100, "systemd", inVMB)
		w.addProcess(400, 1, "like one", "96 1 0:25 /bosh-kubernetes-cpi/bosh/agent-a /dev/bosh/disk-1 rw")
		w.mkdir("proc/500") // one that is ending
	})

	It("are a machine's when they see its folder, or descend from one that does", func() {
		_, output := w.callFunction("processes", "machine_processes bosh/agent-a")
		Expect(output).To(Equal("200\n201\n202\n"))
		_, output = w.callFunction("processes", "machine_processes bosh/agent")
		Expect(output).To(BeEmpty())
	})

	It("are told with their machines", func() {
		_, output := w.callFunction("processes", "processes all")
		Expect(output).To(Equal("1 -\n100 -\n200 bosh/agent-a\n201 bosh/agent-a\n202 bosh/agent-a\n300 bosh/agent-b\n400 -\n"))
	})

	It("that have a device mounted are told with the place", func() {
		_, output := w.callFunction("processes", "processes 8:16")
		Expect(output).To(Equal("200 bosh/agent-a /var/vcap/store\n202 bosh/agent-a /data\n"))
	})
})

var _ = Describe("A device", func() {
	var w fakeRoot
	BeforeEach(func() {
		w = newFakeRoot()
		w.addDevice("dev/volume", 8, 16, mib, "ext4 - 1048576\n")
	})

	const libraries = "device processes users"
	usedByOthers := func() bool {
		GinkgoHelper()
		status, output := w.callFunction(libraries, `used_by_others "$root/dev/volume"`, "VM=bosh/agent-a")
		Expect(output).To(BeEmpty())
		return status == 0
	}

	It("that is free is used by nobody", func() {
		Expect(usedByOthers()).To(BeFalse())
	})

	It("that the machine alone has mounted, containers in it included, is not used by others", func() {
		w.addProcess(200, 1, "runsvdir", inVMA, "92 1 8:16 / /var/vcap/store rw")
		w.addProcess(201, 200, "container", "93 1 8:16 / /data rw")
		w.setState("busy/8:16", "")
		Expect(usedByOthers()).To(BeFalse())
	})

	DescribeTable("is used by others when it is busy", func(processes func()) {
		w.setState("busy/8:16", "")
		processes()
		Expect(usedByOthers()).To(BeTrue())
	},
		Entry("and mounted nowhere to be seen", func() {}),
		Entry("in another machine", func() { w.addProcess(300, 1, "init", inVMB, "92 1 8:16 / /data rw") }),
		Entry("on the node itself", func() { w.addProcess(1, 0, "systemd", "92 1 8:16 / /mnt rw") }),
		Entry("in this machine and in another one", func() {
			w.addProcess(200, 1, "init", inVMA, "92 1 8:16 / /var/vcap/store rw")
			w.addProcess(300, 1, "init", inVMB, "92 1 8:16 / /var/vcap/store rw")
		}),
	)

	It("has users that are named once per mount namespace", func() {
		for _, process := range []int{200, 201} {
			w.addProcess(process, 1, "monit", "92 1 8:16 / /var/vcap/store rw")
			Expect(os.Remove(w.path(fmt.Sprintf("proc/%d/ns/mnt", process)))).To(Succeed())
			Expect(os.Symlink("mnt:[1]", w.path(fmt.Sprintf("proc/%d/ns/mnt", process)))).To(Succeed())
		}
		w.addProcess(300, 1, "nested", "92 1 8:16 / /data rw")
		_, output := w.callFunction(libraries, `users "$root/dev/volume"`)
		Expect(output).To(Equal("process 200 (monit) has it mounted at /var/vcap/store\nprocess 300 (nested) has it mounted at /data\n"))
	})

	// Here the device is that on which the test's own folder lies.
	It("has users that work in its filesystem, or have a file of it open, with no mount of it", func() {
		var here syscall.Stat_t
		Expect(syscall.Stat(w.root, &here)).To(Succeed())
		w.addProcess(200, 1, "works")
		Expect(os.Symlink(w.path("volume"), w.path("proc/200/cwd"))).To(Succeed())
		w.addProcess(201, 1, "reads")
		w.write("volume/file", "")
		Expect(os.Symlink(w.path("volume/file"), w.path("proc/201/fd/7"))).To(Succeed())
		w.addProcess(202, 1, "elsewhere")
		Expect(os.Symlink("/proc", w.path("proc/202/cwd"))).To(Succeed())
		_, output := w.callFunction(libraries, fmt.Sprintf("holders %d:%d", here.Dev>>8&0xfff, here.Dev&0xff|here.Dev>>12&0xfff00))
		Expect(output).To(Equal(fmt.Sprintf("process 200 (works) uses %s\nprocess 201 (reads) uses %s\n", w.path("volume"), w.path("volume/file"))))
	})

	It("is what has a device's node, and nothing else", func() {
		w.write("dev/file", "b 8")
		for _, name := range []string{"dev/file", "dev", "dev/none"} {
			status, _ := w.callFunction("device", `is_device "$root/`+name+`"`)
			Expect(status).To(Equal(1), name)
		}
		_, output := w.callFunction("device", `numbers "$root/dev/volume"`)
		Expect(output).To(Equal("8:16\n"))
	})

	It("is opened exclusively, and a path taken away, only while it is free", func() {
		w.write("devices/disk-1", "")
		w.setState("busy/8:16", "")
		status, output := w.callFunction("device", `exclusively "$root/dev/volume" "$root/devices/disk-1"`)
		Expect(status).To(Equal(1))
		Expect(output).To(BeEmpty())
		Expect(w.exists("devices/disk-1")).To(BeTrue())
		w.clearState("busy/8:16")
		status, _ = w.callFunction("device", `exclusively "$root/dev/volume" "$root/devices/disk-1"`)
		Expect(status).To(BeZero())
		Expect(w.exists("devices/disk-1")).To(BeFalse())
		Expect(w.calls()).To(Equal([]string{"exclusively /dev/volume", "exclusively /dev/volume"}))
	})

	It("that cannot be opened at all is an error, and not in use", func() {
		status, output := w.callFunction("device", `exclusively "$root/dev/none"`)
		Expect(status).To(Equal(1))
		Expect(output).To(ContainSubstring("cannot be opened: No such file or directory"))
	})
})

var _ = Describe("An attachment of a device in use", func() {
	var w fakeRoot
	BeforeEach(func() {
		w = newFakeRoot()
		w.addDevice("dev/volume", 8, 16, 9*mib, "xfs of-the-source 8388608\n")
		w.setState("busy/8:16", "")
	})

	It("fails while others use it, with nothing changed, and names them", func() {
		w.addProcess(300, 1, "postgres", inVMB, "92 1 8:16 / /var/vcap/store rw")
		status, output := w.run(node.Attach(), attachmentXFS...)
		Expect(status).To(Equal(1))
		Expect(output).To(ContainSubstring("disk disk-1 is still in use outside of VM bosh/agent-a: process 300 (postgres) has it mounted at /var/vcap/store"))
		Expect(w.calls()).To(Equal(append(append([]string{readSize}, readMarks(9)...), "blkid -p /dev/volume", "exclusively /dev/volume")))
		Expect(w.exists("devices/disk-1")).To(BeFalse())
	})

	It("publishes it as it is while its own machine uses it", func() {
		w.addProcess(200, 1, "runsvdir", inVMA, "92 1 8:16 / /var/vcap/store rw")
		w.startAttachment(attachmentXFS)
		Expect(w.readFilesystem("8:16")).To(Equal("xfs of-the-source 8388608"))
		Expect(w.calls()).To(Equal(append(append([]string{readSize}, readMarks(9)...),
			"blkid -p /dev/volume", "exclusively /dev/volume",
			readType+"/dev/volume", readUUID+"/dev/volume", "exclusively /dev/volume",
			"exclusively /dev/volume", makeNode+"8 16",
		)))
	})
})
