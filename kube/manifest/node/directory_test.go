package node_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/kube/manifest/node"
)

var _ = Describe("An attachment as a directory", func() {
	// The volume is a folder of a filesystem, as many provisioners make it.
	const volume = "/claims/one"

	var w fakeRoot
	// machine pretends that this one runs, and sees these mounts of the filesystem, as ROOT PLACE.
	addVMProcess := func(number int, folder string, mounts ...string) {
		GinkgoHelper()
		lines := []string{folder}
		for i, mount := range mounts {
			lines = append(lines, fmt.Sprintf("%d 1 0:50 %s rw", 500+i, mount))
		}
		w.addProcess(number, 1, "runsvdir", lines...)
	}
	// mounted says that the volume is mounted at these places of the attachment.
	addVolumeMounts := func(places ...string) {
		GinkgoHelper()
		for i, place := range places {
			w.write("proc/self/mountinfo", w.read("proc/self/mountinfo")+fmt.Sprintf("%d 1 0:50 %s %s rw\n", 80+i, volume, w.path(place)))
		}
	}
	BeforeEach(func() {
		w = newFakeRoot()
		addVolumeMounts("volume")
		w.write("volume/file", "content")
	})
	startAttachment := func() *startedProgram {
		GinkgoHelper()
		r := w.start(node.AttachDirectory(), attachment...)
		r.waitUntil(w.isLocked)
		return r
	}
	places := func() []string {
		var found []string
		for line := range strings.Lines(w.read("proc/self/mountinfo")) {
			found = append(found, strings.TrimPrefix(strings.Fields(line)[4], w.root))
		}
		return found
	}

	It("mounts the volume in the machine's folder, before it says that it has", func() {
		addVMProcess(200, inVMA, volume+" /dev/bosh/disk-1")
		startAttachment()
		Expect(w.calls()).To(Equal([]string{"mount --bind /volume /devices/disk-1"}))
		Expect(w.read("devices/disk-1/file")).To(Equal("content"))
	})

	It("does so for a machine that does not run", func() {
		startAttachment()
		Expect(places()).To(Equal([]string{"/volume", "/devices/disk-1"}))
	})

	It("adopts the mount that a killed one has left", func() {
		killed := startAttachment()
		killed.kill()
		startAttachment()
		Expect(w.calls()).To(HaveLen(1))
	})

	It("takes away a mount that is not the volume's before it makes its own", func() {
		w.mkdir("devices/disk-1")
		w.write("proc/self/mountinfo", w.read("proc/self/mountinfo")+"85 1 0:50 /claims/another "+w.path("devices/disk-1")+" rw\n")
		w.setState("mounts", w.path("devices/disk-1")+" - -\n")
		startAttachment()
		Expect(w.calls()).To(Equal([]string{"umount /devices/disk-1", "mount --bind /volume /devices/disk-1"}))
	})

	It("fails when the mount does not arrive in the machine, and leaves none", func() {
		addVMProcess(200, inVMA)
		status, output := w.run(node.AttachDirectory(), attachment...)
		Expect(status).To(Equal(1))
		Expect(output).To(ContainSubstring("disk disk-1 does not appear in VM bosh/agent-a: the node's bosh/agent-a folder does not propagate mounts into it"))
		Expect(places()).To(Equal([]string{"/volume"}))
	})

	// lockFails has the attachment fail once it has mounted the volume.
	runWithFailingLock := func() (int, string) {
		GinkgoHelper()
		Expect(os.WriteFile(filepath.Join(w.bin, "flock"), []byte("#!/bin/bash\nexit 5\n"), 0o600)).To(Succeed())
		Expect(os.Chmod(filepath.Join(w.bin, "flock"), 0o700)).To(Succeed())
		return w.run(node.AttachDirectory(), attachment...)
	}

	It("leaves no mount when it fails, and says which program did", func() {
		status, output := runWithFailingLock()
		Expect(status).To(Equal(1))
		Expect(output).To(Equal("disk disk-1: status 5 of flock 9\n"))
		Expect(places()).To(Equal([]string{"/volume"}))
	})

	It("leaves the mount when it fails while the VM uses the directory", func() {
		addVMProcess(200, inVMA, volume+" /dev/bosh/disk-1", volume+" /var/vcap/store")
		status, _ := runWithFailingLock()
		Expect(status).To(Equal(1))
		Expect(places()).To(ContainElement("/devices/disk-1"))
	})

	It("fails when another machine has the volume mounted, with nothing done", func() {
		addVMProcess(200, inVMA)
		addVMProcess(300, inVMB, volume+" /var/vcap/store")
		status, output := w.run(node.AttachDirectory(), attachment...)
		Expect(status).To(Equal(1))
		Expect(output).To(Equal("disk disk-1 is still in use outside of VM bosh/agent-a: process 300 (runsvdir) has it mounted at /var/vcap/store\n"))
		Expect(places()).To(Equal([]string{"/volume"}))
	})

	It("does not take another claim of the same filesystem for its own", func() {
		addVMProcess(300, inVMB, volume+"-more /var/vcap/store", "/claims/another /var/vcap/data")
		startAttachment()
	})

	DescribeTable("goes when it is told to, once nothing in the machine uses it", func(signal syscall.Signal) {
		addVMProcess(200, inVMA, volume+" /dev/bosh/disk-1", volume+"/below /var/vcap/store")
		r := startAttachment()
		r.signal(signal)
		r.waitUntil(func() bool { return strings.Contains(r.out.String(), "stays") })
		Expect(r.out.String()).To(Equal("disk disk-1 stays until it is free: process 200 (runsvdir) has it mounted at /var/vcap/store\n"))
		Expect(places()).To(ContainElement("/devices/disk-1"))
		Expect(w.isLocked()).To(BeTrue())
		mountinfo := "proc/200/mountinfo"
		w.write(mountinfo, inVMA+"\n")
		Expect(r.wait()).To(BeZero())
		Expect(places()).To(Equal([]string{"/volume"}))
		Expect(os.ReadDir(w.path("devices"))).To(BeEmpty())
	},
		Entry("SIGTERM", syscall.SIGTERM),
		Entry("SIGRTMIN+3", rtminPlus3),
	)

	It("stays as long as the kernel does not take it away", func() {
		r := startAttachment()
		w.setState("exit/umount", "32") // umount(8): in use
		r.signal(syscall.SIGTERM)
		r.waitUntil(func() bool { return count(w.calls(), "umount /devices/disk-1") > 1 })
		w.clearState("exit/umount")
		Expect(r.wait()).To(BeZero())
	})

	Describe("is released", func() {
		release := func() (int, string) {
			GinkgoHelper()
			return w.run(node.ReleaseDirectory(), attachment...)
		}
		// held has the machine see the directory where an attachment that lives has put it.
		startVisible := func(more ...string) *startedProgram {
			GinkgoHelper()
			addVMProcess(200, inVMA, append([]string{volume + " /dev/bosh/disk-1"}, more...)...)
			return startAttachment()
		}

		It("when nothing in the machine uses it", func() {
			r := startVisible()
			w.write("proc/200/mountinfo", inVMA+"\n") // what the kernel makes of the unmounting
			Expect(release()).To(BeZero())
			Expect(places()).To(Equal([]string{"/volume"}))
			r.signal(syscall.SIGTERM)
			Expect(r.wait()).To(BeZero())
		})

		It("though an earlier try has taken it away", func() {
			startVisible()
			w.write("proc/200/mountinfo", inVMA+"\n")
			Expect(release()).To(BeZero())
			callsBefore := len(w.calls())
			Expect(release()).To(BeZero())
			Expect(w.calls()).To(HaveLen(callsBefore))
		})

		It("not when there is none, and no attachment that holds the disk", func() {
			status, output := release()
			Expect(status).To(Equal(node.ExitNotPublished))
			Expect(output).To(Equal("disk disk-1 is not held by its attachment\n"))
		})

		It("not while the machine, or a container in it, has it mounted elsewhere too", func() {
			startVisible()
			w.addProcess(201, 200, "container", "510 1 0:50 "+volume+" /data rw")
			status, output := release()
			Expect(status).To(Equal(1))
			Expect(output).To(Equal("process 201 (container) has it mounted at /data\n"))
			Expect(places()).To(ContainElement("/devices/disk-1"))
		})

		It("not while the kernel does not unmount it, which names who works there", func() {
			startVisible()
			w.setState("exit/umount", "32")
			status, output := release()
			Expect(status).To(Equal(1))
			Expect(output).To(Equal("process 200 (runsvdir) has it mounted at /dev/bosh/disk-1\n"))
		})

		It("not while a process works in it by a mount that is gone", func() {
			startVisible()
			w.write("proc/200/mountinfo", inVMA+"\n")
			Expect(os.Symlink(w.path("volume"), w.path("proc/200/cwd"))).To(Succeed())
			status, output := release()
			Expect(status).To(Equal(1))
			Expect(output).To(Equal("process 200 (runsvdir) uses " + w.path("volume") + "\n"))
			Expect(places()).To(Equal([]string{"/volume", "/devices/disk-1"}))
		})

		It("not while a process has begun to work in it in the last moment, and is put back", func() {
			startVisible()
			w.write("proc/200/mountinfo", inVMA+"\n")
			r := w.startPausedAt(len(w.calls())+1, node.ReleaseDirectory(), attachment, func(*startedProgram) {
				Expect(os.Symlink(w.path("volume"), w.path("proc/200/cwd"))).To(Succeed())
			})
			Expect(r.wait()).To(Equal(1))
			Expect(r.out.String()).To(Equal("process 200 (runsvdir) uses " + w.path("volume") + "\n"))
			Expect(w.calls()[1:]).To(Equal([]string{"umount /devices/disk-1", "mount --bind /volume /devices/disk-1"}))
			Expect(places()).To(Equal([]string{"/volume", "/devices/disk-1"}))
		})

		It("though a process works in the same filesystem by a mount that is not the volume's", func() {
			startVisible()
			w.addProcess(200, 1, "runsvdir", inVMA, fmt.Sprintf("%s 1 0:50 /claims/another /var/vcap/data rw", mountID(w.path("tmp"))))
			Expect(os.Symlink(w.path("tmp"), w.path("proc/200/cwd"))).To(Succeed())
			Expect(release()).To(BeZero())
		})
	})
})

// mountID returns the number of the mount on which the folder lies, see fdinfo in proc(5).
func mountID(folder string) string {
	GinkgoHelper()
	file, err := os.Open(folder)
	Expect(err).NotTo(HaveOccurred())
	defer file.Close()
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", file.Fd()))
	Expect(err).NotTo(HaveOccurred())
	_, after, found := strings.Cut(string(info), "mnt_id:")
	Expect(found).To(BeTrue())
	return strings.Fields(after)[0]
}
