package node_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/cpi/node"
)

var _ = Describe("The attachment of a disk with attach: bind", func() {
	// Many provisioners create volumes as directories of one filesystem.
	const volume = "/volumes/one"

	var root fakeRoot
	// addVMProcess adds a process of the VM with this mount of its device directory, and with mounts of the filesystem, as ROOT TARGET.
	addVMProcess := func(number int, devices string, mounts ...string) {
		GinkgoHelper()
		lines := []string{devices}
		for i, mount := range mounts {
			lines = append(lines, fmt.Sprintf("%d 1 0:50 %s rw", 500+i, mount))
		}
		root.addProcess(number, 1, "runsvdir", lines...)
	}
	// addVolumeMounts adds mounts of the volume at these paths of the attachment.
	addVolumeMounts := func(targets ...string) {
		GinkgoHelper()
		for i, target := range targets {
			line := fmt.Sprintf("%d 1 0:50 %s %s rw\n", 80+i, volume, root.path(target))
			root.write("proc/self/mountinfo", root.read("proc/self/mountinfo")+line)
		}
	}
	BeforeEach(func() {
		root = newFakeRoot()
		addVolumeMounts("volume")
		root.write("volume/file", "content")
	})
	startAttachment := func() *startedProgram {
		GinkgoHelper()
		r := root.start(node.AttachDirectory(), attachment...)
		r.waitUntil(root.isLocked)
		return r
	}
	mountTargets := func() []string {
		var targets []string
		for line := range strings.Lines(root.read("proc/self/mountinfo")) {
			targets = append(targets, strings.TrimPrefix(strings.Fields(line)[4], root.root))
		}
		return targets
	}

	It("mounts the volume in the VM's directory, and then takes the lock", func() {
		addVMProcess(200, inVMA, volume+" /dev/bosh/disk-1")
		startAttachment()
		Expect(root.calls()).To(Equal([]string{"mount --bind /volume /devices/disk-1"}))
		Expect(root.read("devices/disk-1/file")).To(Equal("content"))
	})

	It("mounts the volume if the VM is not running", func() {
		startAttachment()
		Expect(mountTargets()).To(Equal([]string{"/volume", "/devices/disk-1"}))
	})

	It("adopts the mount of a killed attachment", func() {
		killed := startAttachment()
		killed.kill()
		startAttachment()
		Expect(root.calls()).To(HaveLen(1))
	})

	It("unmounts another volume before it mounts its own", func() {
		root.mkdir("devices/disk-1")
		root.write("proc/self/mountinfo", root.read("proc/self/mountinfo")+"85 1 0:50 /volumes/another "+root.path("devices/disk-1")+" rw\n")
		root.setState("mounts", root.path("devices/disk-1")+" - -\n")
		startAttachment()
		Expect(root.calls()).To(Equal([]string{"umount /devices/disk-1", "mount --bind /volume /devices/disk-1"}))
	})

	It("fails and unmounts the volume if the mount does not propagate to the VM", func() {
		addVMProcess(200, inVMA)
		status, output := root.run(node.AttachDirectory(), attachment...)
		Expect(status).To(Equal(1))
		Expect(output).To(ContainSubstring("cannot publish disk disk-1 in VM bosh/agent-a: the VM's directory on the node " +
			"does not propagate mounts; recreate the VM [mount-not-propagated]"))
		Expect(mountTargets()).To(Equal([]string{"/volume"}))
	})

	// runWithFailingLock runs an attachment that mounts the volume and then fails.
	runWithFailingLock := func() (int, string) {
		GinkgoHelper()
		root.addProgram("flock", "exit 5\n")
		return root.run(node.AttachDirectory(), attachment...)
	}

	It("unmounts the volume if it fails, and reports which program failed", func() {
		status, output := runWithFailingLock()
		Expect(status).To(Equal(1))
		Expect(output).To(Equal("cannot attach disk disk-1: a command failed with exit status 5: flock 9 [disk-attach-failed]\n"))
		Expect(mountTargets()).To(Equal([]string{"/volume"}))
	})

	It("keeps the mount if it fails while the VM uses the directory", func() {
		addVMProcess(200, inVMA, volume+" /dev/bosh/disk-1", volume+" /var/vcap/store")
		status, _ := runWithFailingLock()
		Expect(status).To(Equal(1))
		Expect(mountTargets()).To(ContainElement("/devices/disk-1"))
	})

	It("fails without changes if another VM has the volume mounted", func() {
		addVMProcess(200, inVMA)
		addVMProcess(300, inVMB, volume+" /var/vcap/store")
		status, output := root.run(node.AttachDirectory(), attachment...)
		Expect(status).To(Equal(1))
		Expect(output).To(Equal("cannot publish disk disk-1 in VM bosh/agent-a: it is in use in another VM: " +
			"process 300 (runsvdir) has it mounted at /var/vcap/store [disk-in-use]\n"))
		Expect(mountTargets()).To(Equal([]string{"/volume"}))
	})

	It("ignores a container in another VM that is starting and still uses the node's filesystem", func() {
		addVMProcess(200, inVMA, volume+" /dev/bosh/disk-1")
		addVMProcess(300, inVMB)
		cwd, looked := root.path("proc/300/cwd"), root.path("looked")
		Expect(os.Symlink(root.path("volume"), cwd)).To(Succeed())
		perl, err := exec.LookPath("perl")
		Expect(err).NotTo(HaveOccurred())
		root.addProgram("perl", fmt.Sprintf("if [[ $* == */dev/bosh/disk-1* ]]; then\n"+
			"[[ ! -e %[1]s ]] || rm -f %[2]s\n: >%[1]s\nfi\nexec %[3]s \"$@\"\n", looked, cwd, perl))
		startAttachment()
		Expect(looked).To(BeAnExistingFile())
	})

	Describe("if a look at the node fails, for example without memory,", func() {
		looks := []TableEntry{Entry("at the processes", "all"), Entry("at the mounts", "mounts")}
		failLook := func(argument string) {
			GinkgoHelper()
			root.setState("exit/perl", "137 "+argument)
		}

		DescribeTable("fails without changes", func(argument string) {
			addVMProcess(300, inVMB)
			failLook(argument)
			status, output := root.run(node.AttachDirectory(), attachment...)
			Expect(status).To(Equal(1))
			Expect(output).To(HavePrefix("cannot attach disk disk-1: a command failed with exit status 137: "))
			Expect(mountTargets()).To(Equal([]string{"/volume"}))
		}, looks)

		DescribeTable("keeps the mount, and the exclusivity check counts as killed", func(argument string) {
			startAttachment()
			failLook(argument)
			status, _ := root.run(node.ExclusivityCheckDirectory(), attachment...)
			Expect(status).To(Equal(137))
			Expect(mountTargets()).To(ContainElement("/devices/disk-1"))
		}, looks, Entry("at the open files, after it unmounted the volume", "users"))

		DescribeTable("does not exit on a signal", func(argument string) {
			r := startAttachment()
			failLook(argument)
			r.signal(syscall.SIGTERM)
			r.waitUntil(func() bool { return count(root.calls(), "perl fails") > 1 })
			Expect(mountTargets()).To(ContainElement("/devices/disk-1"))
			root.clearState("exit/perl")
			Expect(r.wait()).To(BeZero())
		}, looks)
	})

	It("ignores other volumes in the same filesystem", func() {
		addVMProcess(300, inVMB, volume+"-more /var/vcap/store", "/volumes/another /var/vcap/data")
		startAttachment()
	})

	DescribeTable("exits on a signal when nothing in the VM uses the disk", func(signal syscall.Signal) {
		addVMProcess(200, inVMA, volume+" /dev/bosh/disk-1", volume+"/sub /var/vcap/store")
		r := startAttachment()
		r.signal(signal)
		r.waitUntil(func() bool { return strings.Contains(r.out.String(), "waiting") })
		Expect(r.out.String()).To(Equal("waiting until disk disk-1 is free: process 200 (runsvdir) has it mounted at /var/vcap/store\n"))
		Expect(mountTargets()).To(ContainElement("/devices/disk-1"))
		Expect(root.isLocked()).To(BeTrue())
		mountinfo := "proc/200/mountinfo"
		root.write(mountinfo, inVMA+"\n")
		Expect(r.wait()).To(BeZero())
		Expect(mountTargets()).To(Equal([]string{"/volume"}))
		Expect(os.ReadDir(root.path("devices"))).To(BeEmpty())
	},
		Entry("SIGTERM", syscall.SIGTERM),
		Entry("SIGRTMIN+3", rtminPlus3),
	)

	It("waits until the kernel unmounts the volume", func() {
		r := startAttachment()
		root.setState("exit/umount", "32") // umount(8): in use
		r.signal(syscall.SIGTERM)
		r.waitUntil(func() bool { return count(root.calls(), "umount /devices/disk-1") > 1 })
		root.clearState("exit/umount")
		Expect(r.wait()).To(BeZero())
	})

	Describe("passes the exclusivity check", func() {
		release := func() (int, string) {
			GinkgoHelper()
			return root.run(node.ExclusivityCheckDirectory(), attachment...)
		}
		// startVisible starts an attachment with a directory that is visible in the VM.
		startVisible := func() *startedProgram {
			GinkgoHelper()
			addVMProcess(200, inVMA, volume+" /dev/bosh/disk-1")
			return startAttachment()
		}

		It("if nothing in the VM uses it", func() {
			r := startVisible()
			root.write("proc/200/mountinfo", inVMA+"\n") // as after the kernel unmounted it
			Expect(release()).To(BeZero())
			Expect(mountTargets()).To(Equal([]string{"/volume"}))
			r.signal(syscall.SIGTERM)
			Expect(r.wait()).To(BeZero())
		})

		It("if an earlier release unmounted it", func() {
			startVisible()
			root.write("proc/200/mountinfo", inVMA+"\n")
			Expect(release()).To(BeZero())
			callsBefore := len(root.calls())
			Expect(release()).To(BeZero())
			Expect(root.calls()).To(HaveLen(callsBefore))
		})

		It("but not if there is no mount and no attachment holds the lock", func() {
			status, output := release()
			Expect(status).To(Equal(node.ExitNotPublished))
			Expect(output).To(Equal("the attachment of disk disk-1 has not published it yet [disk-not-published]\n"))
		})

		It("but not while the VM or a container in it has it mounted at another path", func() {
			startVisible()
			root.addProcess(201, 200, "container", "510 1 0:50 "+volume+" /data rw")
			status, output := release()
			Expect(status).To(Equal(1))
			Expect(output).To(Equal("process 201 (container) has it mounted at /data\n"))
			Expect(mountTargets()).To(ContainElement("/devices/disk-1"))
		})

		It("but not while the kernel does not unmount it, which reports the processes", func() {
			startVisible()
			root.setState("exit/umount", "32")
			status, output := release()
			Expect(status).To(Equal(1))
			Expect(output).To(Equal("process 200 (runsvdir) has it mounted at /dev/bosh/disk-1\n"))
		})

		It("but not while a process uses it through a mount that no longer exists", func() {
			startVisible()
			root.write("proc/200/mountinfo", inVMA+"\n")
			Expect(os.Symlink(root.path("volume"), root.path("proc/200/cwd"))).To(Succeed())
			status, output := release()
			Expect(status).To(Equal(1))
			Expect(output).To(Equal("process 200 (runsvdir) uses " + root.path("volume") + "\n"))
			Expect(mountTargets()).To(Equal([]string{"/volume", "/devices/disk-1"}))
		})

		It("but is mounted again if a process starts to use it at the last moment", func() {
			startVisible()
			root.write("proc/200/mountinfo", inVMA+"\n")
			r := root.startPausedAt(len(root.calls())+1, node.ExclusivityCheckDirectory(), attachment, func(*startedProgram) {
				Expect(os.Symlink(root.path("volume"), root.path("proc/200/cwd"))).To(Succeed())
			})
			Expect(r.wait()).To(Equal(1))
			Expect(r.out.String()).To(Equal("process 200 (runsvdir) uses " + root.path("volume") + "\n"))
			Expect(root.calls()[1:]).To(Equal([]string{"umount /devices/disk-1", "mount --bind /volume /devices/disk-1"}))
			Expect(mountTargets()).To(Equal([]string{"/volume", "/devices/disk-1"}))
		})

		It("while a process uses another volume in the same filesystem", func() {
			startVisible()
			root.addProcess(200, 1, "runsvdir", inVMA, fmt.Sprintf("%s 1 0:50 /volumes/another /var/vcap/data rw", mountID(root.path("tmp"))))
			Expect(os.Symlink(root.path("tmp"), root.path("proc/200/cwd"))).To(Succeed())
			Expect(release()).To(BeZero())
		})
	})
})

// mountID returns the ID of the mount that contains the directory; see fdinfo in proc(5).
func mountID(directory string) string {
	GinkgoHelper()
	file, err := os.Open(directory)
	Expect(err).NotTo(HaveOccurred())
	defer file.Close()
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", file.Fd()))
	Expect(err).NotTo(HaveOccurred())
	_, after, found := strings.Cut(string(info), "mnt_id:")
	Expect(found).To(BeTrue())
	return strings.Fields(after)[0]
}
