//go:build linux

package attach_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/attach"
	"bosh-kubernetes-cpi/cpi/node/device"
	"bosh-kubernetes-cpi/cpi/node/filesystem"
	"bosh-kubernetes-cpi/cpi/node/system"
	"bosh-kubernetes-cpi/test/harness/processtest"
)

var _ = Describe("An attachment", func() {
	var f fixture
	BeforeEach(func() { f = newFixture() })

	It("publishes the loop device of an image file, and unpublishes it after a stop", func() {
		r := f.attach(f.System())
		Expect(f.loops()).To(HaveLen(1))
		Expect(device.NumbersOf(system.System{}, f.loops()[0])).To(Equal(f.numbers()))
		Expect(os.Stat(f.Path(nodePath))).To(HaveField("Mode()", os.ModeDevice|0o660))
		r.stop()
		Expect(r.wait()).To(Succeed())
		f.expectUnpublished()
	})

	It("publishes the device of a Block volume", func() {
		numbers := f.addBlockVolume()
		r := f.attach(f.System())
		Expect(f.numbers()).To(Equal(numbers))
		Expect(f.exists("/markers/attached")).To(BeTrue())
		r.stop()
		Expect(r.wait()).To(Succeed())
		f.expectUnpublished()
	})

	It("is one of the last processes that the kernel kills when the node's memory is used up", func() {
		f.attach(f.System())
		Expect(os.ReadFile(f.Path("proc/self/oom_score_adj"))).To(HavePrefix("-997"))
	})

	It("also publishes if it is not allowed to lower its OOM score", func() {
		f.attach(f.failing(func(_, path string) error {
			if path == "/proc/self/oom_score_adj" {
				return unix.EACCES
			}
			return nil
		}))
	})

	// Ginkgo handles signals, too.
	DescribeTable("stops at each signal, and ignores more", func(signal unix.Signal) {
		program := exec.Command(os.Args[0])
		program.Env = append(os.Environ(), waitForStopEnv+"=true")
		output, err := program.StdoutPipe()
		Expect(err).NotTo(HaveOccurred())
		input, err := program.StdinPipe()
		Expect(err).NotTo(HaveOccurred())
		Expect(program.Start()).To(Succeed())
		DeferCleanup(func() { _ = program.Process.Kill() })
		lines := gbytes.BufferReader(output)
		Eventually(lines).Should(gbytes.Say("started"))
		Expect(program.Process.Signal(signal)).To(Succeed())
		Eventually(lines).Should(gbytes.Say("stopped"))
		Expect(program.Process.Signal(signal)).To(Succeed())
		Expect(input.Close()).To(Succeed())
		Expect(program.Wait()).To(Succeed())
	},
		Entry("SIGTERM", unix.SIGTERM),
		Entry("SIGINT", unix.SIGINT),
		Entry("SIGQUIT", unix.SIGQUIT),
		Entry("SIGRTMIN+3", unix.Signal(37)),
	)

	It("first finishes publishing the disk, no matter when the stop comes", func() {
		var calls []string
		record := func(call, path string) error {
			calls = append(calls, call+" "+path)
			return nil
		}
		Expect(run(attach.Run, f.failing(record), disk)).To(Succeed())
		Expect(calls).To(ContainElements("mknod /devices/disk-1.new", "flock /devices/.disk-1.lock.new", "remove /devices/disk-1"))
		f.expectUnpublished()
	})

	It("removes node, loop device and lock in this order", func() {
		var calls []string
		var stopped atomic.Bool
		r := f.attach(f.failing(func(call, path string) error {
			if stopped.Load() && (call == "remove" || call == "LOOP_CLR_FD") {
				calls = append(calls, call+" "+path)
			}
			return nil
		}))
		loop := "/dev/" + loopName(f)
		stopped.Store(true)
		r.stop()
		Expect(r.wait()).To(Succeed())
		Expect(calls).To(Equal([]string{"remove " + nodePath, "LOOP_CLR_FD " + loop, "remove " + lockPath}))
	})

	It("waits until the device is free, and logs once which processes use it", func() {
		r := f.attach(f.System())
		release := f.hold("/dev/" + loopName(f))
		f.addMount(f.numbers(), processtest.InVM(vm))
		r.stop()
		Eventually(f.log).Should(gbytes.Say(`waiting until the disk is free.*process 200 \(postgres\) has it mounted at /var/vcap/store`))
		Expect(f.exists(nodePath)).To(BeTrue())
		Expect(f.isLocked()).To(BeTrue())
		f.Remove("proc/200")
		release()
		Expect(r.wait()).To(Succeed())
		Expect(f.log).NotTo(gbytes.Say("waiting"))
		f.expectUnpublished()
	})

	It("waits while a process of the VM has the device open without a mount", func() {
		r := f.attach(f.System())
		f.addOpener(nodePath)
		r.stop()
		Eventually(f.log).Should(gbytes.Say(`process 200 \(dd\) uses `))
		Expect(f.exists(nodePath)).To(BeTrue())
		f.Remove("proc/200")
		Expect(r.wait()).To(Succeed())
		f.expectUnpublished()
	})

	It("ignores a process outside of the VM that has the device open, such as udev", func() {
		r := f.attach(f.System())
		f.Add(processtest.Process{ID: 200, Parent: 1, Name: "udevd"})
		f.Open(200, 3, f.Path(nodePath), 7000099)
		r.stop()
		Expect(r.wait()).To(Succeed())
		f.expectUnpublished()
	})

	DescribeTable("waits if it cannot find out whether the device is in use", func(failing string) {
		var failure atomic.Int64
		r := f.attach(f.failing(func(call, path string) error {
			if call+" "+path == failing {
				if errno := failure.Load(); errno != 0 {
					return unix.Errno(errno)
				}
			}
			return nil
		}))
		failure.Store(int64(unix.EIO))
		r.stop()
		Eventually(f.log).Should(gbytes.Say("input/output error"))
		failure.Store(int64(unix.ENOMEM))
		Eventually(f.log).Should(gbytes.Say("cannot allocate memory"))
		Expect(f.exists(nodePath)).To(BeTrue())
		failure.Store(0)
		Expect(r.wait()).To(Succeed())
		f.expectUnpublished()
	},
		Entry("because it cannot list the processes", "readdir /proc"),
		Entry("because it cannot read a process", "read /proc/100/status"),
		Entry("because it cannot read the lock", "lstat "+lockPath),
	)

	It("waits if the device fails, and does not if it is gone", func() {
		f.addBlockVolume()
		var failure atomic.Int64
		r := f.attach(f.failing(func(call, path string) error {
			if errno := failure.Load(); errno != 0 && call == "open" && path == "/dev/volume" {
				return unix.Errno(errno)
			}
			return nil
		}))
		failure.Store(int64(unix.EIO))
		r.stop()
		Eventually(f.log).Should(gbytes.Say("input/output error"))
		f.addOpener(nodePath)
		failure.Store(int64(unix.ENXIO))
		Expect(r.wait()).To(Succeed())
		f.expectUnpublished()
	})

	It("does not wait if an exclusivity check removed the node", func() {
		r := f.attach(f.System())
		Expect(attach.Check(GinkgoT().Context(), f.System(), disk)).To(Succeed())
		Expect(f.exists(nodePath)).To(BeFalse())
		Expect(f.loops()).To(HaveLen(1), "the attachment frees it")
		r.stop()
		Expect(r.wait()).To(Succeed())
		f.expectUnpublished()
	})

	It("leaves everything to another attachment that took over", func() {
		first := f.attach(f.System())
		Expect(os.Remove(f.Path(lockPath))).To(Succeed())
		second := f.attach(f.System())
		numbers := f.numbers()
		first.stop()
		Expect(first.wait()).To(Succeed())
		Expect(f.log).To(gbytes.Say("another attachment of the disk took over"))
		Expect(f.numbers()).To(Equal(numbers))
		Expect(f.isLocked()).To(BeTrue())
		Expect(f.loops()).To(HaveLen(1))
		second.stop()
		Expect(second.wait()).To(Succeed())
		f.expectUnpublished()
	})

	It("publishes the loop device of a killed attachment, which the VM still uses", func() {
		path, numbers := f.publishImage()
		release := f.hold(nodePath)
		f.addMount(numbers, processtest.InVM(vm))
		removed := false
		f.attach(f.failing(func(call, path string) error {
			removed = removed || call == "remove" && path == nodePath
			return nil
		}))
		Expect(removed).To(BeFalse())
		Expect(f.numbers()).To(Equal(numbers))
		Expect(f.loops()).To(ConsistOf(path))
		release()
		f.Remove("proc/200")
	})

	It("publishes the device of a killed attachment again, although no mount shows that the VM uses it, as with btrfs or LVM", func() {
		_, numbers := f.publishImage()
		release := f.hold(nodePath)
		f.attach(f.System())
		Expect(f.numbers()).To(Equal(numbers))
		release()
	})

	It("does not publish the device of a killed attachment again if it is mounted outside of the VM", func() {
		DeferCleanup(attach.ShortenPauses())
		_, numbers := f.publishImage()
		f.hold(nodePath)
		f.addMount(numbers)
		_ = expectCode(run(attach.Run, f.System(), disk), "disk-in-use")
	})

	It("gives the filesystem the UUID of the disk, although another program had the device open for a moment", func() {
		f.addBlockVolume()
		output, err := exec.Command("mkfs.ext4", "-q", "-U", otherUUID, f.Path("/dev/volume")).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(output))
		formatted := disk
		formatted.Formatted = true
		release, tries := f.hold("/dev/volume"), 0
		r := start(attach.Run, f.failing(func(call, path string) error {
			if call == "open" && path == "/dev/volume" {
				if tries++; tries == 3 {
					release()
				}
			}
			return nil
		}), formatted)
		f.waitPublished(r)
		Expect(filesystem.Identify(f.System(), "/dev/volume")).NotTo(HaveField("UUID", otherUUID))
	})

	It("removes the lock of an earlier attachment first", func() {
		f.Write(lockPath, "")
		f.attach(f.failing(func(call, path string) error {
			if call == "mknod" && path == nodePath+".new" {
				Expect(f.exists(lockPath)).To(BeFalse())
			}
			return nil
		}))
	})
})

const otherUUID = "11111111-2222-3333-4444-555555555555"

// loopName returns the name of the loop device of the image file.
func loopName(f fixture) string {
	GinkgoHelper()
	loops := f.loops()
	Expect(loops).To(HaveLen(1))
	return filepath.Base(loops[0])
}
