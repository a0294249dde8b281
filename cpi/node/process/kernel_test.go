//go:build linux

package process_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/process"
	"bosh-kubernetes-cpi/cpi/node/system"
)

// realVM is the VM of processes in these tests.
const realVM = "bosh/agent-of-a-test"

// run runs a program that must succeed, and returns its output without the last newline.
func run(name string, arguments ...string) string {
	GinkgoHelper()
	output, err := exec.Command(name, arguments...).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s", output)
	return strings.TrimSpace(string(output))
}

// newDisk returns a loop device with an ext4 filesystem, and its device number.
func newDisk(directory string) (path string, device uint64) {
	GinkgoHelper()
	image := filepath.Join(directory, "disk.img")
	Expect(os.WriteFile(image, nil, 0o600)).To(Succeed())
	Expect(os.Truncate(image, 16<<20)).To(Succeed())
	run("mkfs.ext4", "-q", image)
	path = run("losetup", "--find", "--show", image)
	DeferCleanup(func() { run("losetup", "--detach", path) })
	stat, err := system.System{}.Stat(path)
	Expect(err).NotTo(HaveOccurred())
	return path, stat.Rdev
}

// startInVM runs a script in a mount namespace with the device directory of realVM, and waits until it
// becomes the program tail, which prints the device number. Its device is /dev/disk.
func startInVM(directory, script string, files ...*os.File) int {
	GinkgoHelper()
	Expect(os.MkdirAll(filepath.Join(directory, realVM), 0o755)).To(Succeed())
	command := exec.Command("unshare", "--mount", "--propagation", "private", "/bin/bash", "-euc",
		`cd "$0"; device=$(cat numbers); mount -t tmpfs tmpfs /dev; mkdir /dev/bosh mnt; mount --bind "$1" /dev/bosh
		mknod /dev/disk b ${device%:*} ${device#*:}; `+script+`; exec tail -f "$0/numbers"`, directory, realVM)
	command.ExtraFiles = files
	ready, err := command.StdoutPipe()
	Expect(err).NotTo(HaveOccurred())
	command.Stderr = GinkgoWriter
	Expect(command.Start()).To(Succeed())
	DeferCleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	line := make([]byte, 1)
	_, err = ready.Read(line)
	Expect(err).NotTo(HaveOccurred(), "the script failed")
	return command.Process.Pid
}

// mountHungFilesystem mounts a FUSE filesystem without a daemon, and returns a reference to its root directory.
func mountHungFilesystem(target string) *os.File {
	GinkgoHelper()
	Expect(os.Mkdir(target, 0o755)).To(Succeed())
	connection, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		Skip("needs FUSE: " + err.Error())
	}
	DeferCleanup(connection.Close)
	data := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", connection.Fd())
	Expect(unix.Mount("fuse", target, "fuse", 0, data)).To(Succeed())
	DeferCleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
	file, err := os.OpenFile(target, unix.O_PATH, 0)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(file.Close)
	return file
}

var _ = Describe("The users of a real disk", func() {
	var directory, path string
	var device uint64
	BeforeEach(func() {
		if os.Geteuid() != 0 {
			Skip("needs root: mounts filesystems")
		}
		directory = GinkgoT().TempDir()
		path, device = newDisk(directory)
		numbers := fmt.Sprintf("%d:%d", unix.Major(device), unix.Minor(device))
		Expect(os.WriteFile(filepath.Join(directory, "numbers"), []byte(numbers), 0o600)).To(Succeed())
	})
	users := func() []api.User {
		GinkgoHelper()
		table, err := process.Read(system.System{})
		Expect(err).NotTo(HaveOccurred())
		found, err := table.Users(realVM, device)
		Expect(err).NotTo(HaveOccurred())
		return found
	}

	It("do not include a process outside of the VM", func() {
		file, err := os.Open(path)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(file.Close)
		startInVM(directory, "true")
		Expect(users()).To(BeEmpty())
	})

	It("include a process that opened it", func() {
		id := startInVM(directory, "exec 3</dev/disk")
		Expect(users()).To(Equal([]api.User{{Process: id, Name: "tail", Path: "/dev/disk"}}))
	})

	It("include a process that has it mounted, and one with a file in it", func() {
		id := startInVM(directory, `mount -t ext4 /dev/disk mnt; exec 3>mnt/file`)
		Expect(users()).To(Equal([]api.User{
			{Process: id, Name: "tail", Path: filepath.Join(directory, "mnt"), Mounted: true},
			{Process: id, Name: "tail", Path: filepath.Join(directory, "mnt/file")},
		}))
	})

	DescribeTable("include a process that uses its filesystem after a lazy unmount", func(script, name string) {
		id := startInVM(directory, `mount -t ext4 /dev/disk mnt; `+script+`; umount --lazy "$0/mnt"`)
		Expect(users()).To(Equal([]api.User{{Process: id, Name: "tail", Path: name}}))
	},
		Entry("by an open file", "exec 3>mnt/file", "/file"),
		Entry("by its working directory", "cd mnt", "/"),
	)

	It("are found while the VM uses a filesystem that does not respond", func() {
		hung := filepath.Join(directory, "hung")
		startInVM(directory, "true", mountHungFilesystem(hung))
		checked := make(chan []api.User)
		check := func() {
			defer GinkgoRecover()
			checked <- users()
		}
		go check()
		Eventually(checked).Should(Receive(BeEmpty()))
		Expect(unix.Unmount(hung, unix.MNT_DETACH)).To(Succeed())
		go check()
		Eventually(checked).Should(Receive(BeEmpty()))
	})
})
