package node_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node"
)

// Mounts of the device directories of two VMs, as in /proc/PID/mountinfo.
const (
	inVMA = "90 1 0:25 /bosh-kubernetes-cpi/bosh/agent-a /dev/bosh rw"
	inVMB = "91 1 0:25 /bosh-kubernetes-cpi/bosh/agent-b /dev/bosh rw"
)

// filesystemNumber returns the device number of the filesystem of the fake root. A process with a working directory in the fake root uses
// a fake device with this number.
func (f fakeRoot) filesystemNumber() (major, minor int) {
	GinkgoHelper()
	var info unix.Stat_t
	Expect(unix.Stat(f.root, &info)).To(Succeed())
	return int(unix.Major(info.Dev)), int(unix.Minor(info.Dev))
}

// addProcess adds a process of the node to the fake /proc. mounts are the lines of its mountinfo.
func (f fakeRoot) addProcess(pid, ppid int, name string, mounts ...string) {
	GinkgoHelper()
	directory := fmt.Sprintf("proc/%d/", pid)
	Expect(os.RemoveAll(f.path(directory))).To(Succeed())
	f.write(directory+"status", fmt.Sprintf("Name:\t%s\nPPid:\t%d\n", name, ppid))
	f.write(directory+"comm", name+"\n")
	f.write(directory+"mountinfo", strings.Join(append(mounts, ""), "\n"))
	f.mkdir(directory + "ns")
	f.mkdir(directory + "fd")
	Expect(os.Symlink(fmt.Sprintf("mnt:[%d]", pid), f.path(directory+"ns/mnt"))).To(Succeed())
}

var _ = Describe("The processes of a node", func() {
	var root fakeRoot
	BeforeEach(func() {
		root = newFakeRoot()
		root.addProcess(1, 0, "systemd", "20 1 8:1 / / rw")
		root.addProcess(100, 1, "containerd-shim")
		root.addProcess(200, 100, "runsvdir", inVMA, "92 1 8:16 / /var/vcap/store rw", "93 1 8:16 / /elsewhere rw")
		root.addProcess(201, 200, "container", "94 1 0:40 / / rw")
		root.addProcess(202, 201, "in a container", "95 1 8:16 / /data rw")
		root.addProcess(300, 100, "systemd", inVMB)
		root.addProcess(400, 1, "similar", "96 1 0:25 /bosh-kubernetes-cpi/bosh/agent-a /dev/bosh/disk-1 rw")
		root.mkdir("proc/500") // a process that is exiting
	})

	It("belong to a VM if they or one of their ancestors have its device directory mounted", func() {
		_, output := root.callFunction("processes", "vm_processes bosh/agent-a")
		Expect(output).To(Equal("200\n201\n202\n"))
		_, output = root.callFunction("processes", "vm_processes bosh/agent")
		Expect(output).To(BeEmpty())
	})

	It("are printed with their VMs", func() {
		_, output := root.callFunction("processes", "processes all")
		Expect(output).To(Equal("1 -\n100 -\n200 bosh/agent-a\n201 bosh/agent-a\n202 bosh/agent-a\n300 bosh/agent-b\n400 -\n"))
	})

	It("are printed with the path at which they have a device mounted", func() {
		_, output := root.callFunction("processes", "processes 8:16")
		Expect(output).To(Equal("200 bosh/agent-a /var/vcap/store\n202 bosh/agent-a /data\n"))
	})
})

var _ = Describe("A block device", func() {
	var root fakeRoot
	BeforeEach(func() {
		root = newFakeRoot()
		root.addDevice("dev/volume", 8, 16, mib, "ext4 - 1048576\n")
	})

	const libraries = "device processes users"
	usedByOthers := func() bool {
		GinkgoHelper()
		status, output := root.callFunction(libraries, `used_by_others "$root/dev/volume"`, "VM=bosh/agent-a")
		Expect(output).To(BeEmpty())
		return status == 0
	}

	It("is not used by others if it is free", func() {
		Expect(usedByOthers()).To(BeFalse())
	})

	It("is not used by others if only the VM or a container in it has it mounted", func() {
		root.addProcess(200, 1, "runsvdir", inVMA, "92 1 8:16 / /var/vcap/store rw")
		root.addProcess(201, 200, "container", "93 1 8:16 / /data rw")
		root.setState("busy/8:16", "")
		Expect(usedByOthers()).To(BeFalse())
	})

	DescribeTable("is used by others if it is busy", func(addProcesses func()) {
		root.setState("busy/8:16", "")
		addProcesses()
		Expect(usedByOthers()).To(BeTrue())
	},
		Entry("and no process has it mounted", func() {}),
		Entry("and mounted in another VM", func() { root.addProcess(300, 1, "init", inVMB, "92 1 8:16 / /data rw") }),
		Entry("and mounted on the node", func() { root.addProcess(1, 0, "systemd", "92 1 8:16 / /mnt rw") }),
		Entry("and mounted in this VM and in another VM", func() {
			root.addProcess(200, 1, "init", inVMA, "92 1 8:16 / /var/vcap/store rw")
			root.addProcess(300, 1, "init", inVMB, "92 1 8:16 / /var/vcap/store rw")
		}),
	)

	It("has one user listed for each mount namespace", func() {
		for _, process := range []int{200, 201} {
			root.addProcess(process, 1, "monit", "92 1 8:16 / /var/vcap/store rw")
			Expect(os.Remove(root.path(fmt.Sprintf("proc/%d/ns/mnt", process)))).To(Succeed())
			Expect(os.Symlink("mnt:[1]", root.path(fmt.Sprintf("proc/%d/ns/mnt", process)))).To(Succeed())
		}
		root.addProcess(300, 1, "nested", "92 1 8:16 / /data rw")
		_, output := root.callFunction(libraries, `users "$root/dev/volume"`)
		Expect(output).To(Equal("process 200 (monit) has it mounted at /var/vcap/store\nprocess 300 (nested) has it mounted at /data\n"))
	})

	// This test uses the device that contains the temporary directory.
	It("has users listed that have a working directory or an open file in its filesystem, even without a mount", func() {
		var directory syscall.Stat_t
		Expect(syscall.Stat(root.root, &directory)).To(Succeed())
		root.addProcess(200, 1, "shell")
		Expect(os.Symlink(root.path("volume"), root.path("proc/200/cwd"))).To(Succeed())
		root.addProcess(201, 1, "reader")
		root.write("volume/file", "")
		Expect(os.Symlink(root.path("volume/file"), root.path("proc/201/fd/7"))).To(Succeed())
		root.addProcess(202, 1, "other")
		Expect(os.Symlink("/proc", root.path("proc/202/cwd"))).To(Succeed())
		major, minor := directory.Dev>>8&0xfff, directory.Dev&0xff|directory.Dev>>12&0xfff00
		_, output := root.callFunction(libraries, fmt.Sprintf("openers %d:%d", major, minor))
		Expect(output).To(Equal(fmt.Sprintf("process 200 (shell) uses %s\nprocess 201 (reader) uses %s\n",
			root.path("volume"), root.path("volume/file"))))
	})

	It("is recognized only if the path is a device node", func() {
		root.write("dev/file", "b 8")
		for _, name := range []string{"dev/file", "dev", "dev/none"} {
			status, _ := root.callFunction("device", `is_device "$root/`+name+`"`)
			Expect(status).To(Equal(1), name)
		}
		_, output := root.callFunction("device", `device_numbers "$root/dev/volume"`)
		Expect(output).To(Equal("8:16\n"))
	})

	It("is checked with an exclusive open, and a path is removed only if that succeeds", func() {
		root.write("devices/disk-1", "")
		root.setState("busy/8:16", "")
		status, output := root.callFunction("device", `check_exclusive "$root/dev/volume" "$root/devices/disk-1"`)
		Expect(status).To(Equal(1))
		Expect(output).To(BeEmpty())
		Expect(root.exists("devices/disk-1")).To(BeTrue())
		root.clearState("busy/8:16")
		status, _ = root.callFunction("device", `check_exclusive "$root/dev/volume" "$root/devices/disk-1"`)
		Expect(status).To(BeZero())
		Expect(root.exists("devices/disk-1")).To(BeFalse())
		Expect(root.calls()).To(Equal([]string{"open exclusively /dev/volume", "open exclusively /dev/volume"}))
	})

	It("causes an error, and is not reported as in use, if it cannot be opened", func() {
		status, output := root.callFunction("device", `check_exclusive "$root/dev/none"`)
		Expect(status).To(Equal(1))
		Expect(output).To(MatchRegexp("^cannot open .*dev/none: No such file or directory\n"))
	})
})

var _ = Describe("The attachment of a device in use", func() {
	var root fakeRoot
	BeforeEach(func() {
		root = newFakeRoot()
		root.addDevice("dev/volume", 8, 16, 9*mib, "xfs source 8388608\n")
		root.setState("busy/8:16", "")
	})

	It("fails without changes while others use it, and reports them", func() {
		root.addProcess(300, 1, "postgres", inVMB, "92 1 8:16 / /var/vcap/store rw")
		status, output := root.run(node.Attach(), attachmentXFS...)
		Expect(status).To(Equal(1))
		Expect(output).To(ContainSubstring("cannot publish disk disk-1 in VM bosh/agent-a: it is in use outside of the VM: " +
			"process 300 (postgres) has it mounted at /var/vcap/store [disk-in-use]"))
		Expect(root.calls()).To(Equal(append(append([]string{readSize}, readMarks(9)...),
			"blkid -p /dev/volume", "open exclusively /dev/volume")))
		Expect(root.exists("devices/disk-1")).To(BeFalse())
	})

	It("publishes the device without changing it while only its own VM uses it", func() {
		root.addProcess(200, 1, "runsvdir", inVMA, "92 1 8:16 / /var/vcap/store rw")
		root.startAttachment(attachmentXFS)
		Expect(root.readFilesystem("8:16")).To(Equal("xfs source 8388608"))
		Expect(root.calls()).To(Equal(append(append([]string{readSize}, readMarks(9)...),
			"blkid -p /dev/volume", "open exclusively /dev/volume",
			readType+"/dev/volume", readUUID+"/dev/volume", "open exclusively /dev/volume",
			"open exclusively /dev/volume", makeNode+"8 16",
		)))
	})
})
