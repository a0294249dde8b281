//go:build linux

package process_test

import (
	"io/fs"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/process"
	"bosh-kubernetes-cpi/cpi/node/system"
	. "bosh-kubernetes-cpi/test/harness/processtest"
)

var _ = Describe("The users of a disk", func() {
	var root Root
	var file string
	BeforeEach(func() {
		root = New()
		root.Add(Process{ID: 1, Name: "systemd", Mounts: []string{Mount(7000020, "8:1", "/", "/", "ext4")}})
		root.Add(Process{ID: 200, Parent: 1, Name: "runsvdir", InnerIDs: []int{1}, Namespace: "vm", Mounts: []string{
			InVM(vmA), Mount(7000091, "0:40", "/", "/", "overlay"),
			Mount(7000093, "0:50", "/", "/mnt", "nfs4"), Mount(7000094, "8:48", "/", "/ntfs", "fuseblk"),
		}})
		root.Add(Process{ID: 201, Parent: 200, Name: "shell", InnerIDs: []int{2}, Namespace: "vm"})
		root.Add(Process{ID: 300, Parent: 1, Name: "other", Mounts: []string{InVM(vmB)}})
		root.Write("file", "")
		file = root.Path("file")
	})

	users := func(device uint64) []string {
		GinkgoHelper()
		found, err := read(root.System()).Users(vmA, device)
		Expect(err).NotTo(HaveOccurred())
		var users []string
		for _, user := range found {
			users = append(users, user.String())
		}
		return users
	}
	deviceOf := func(path string) uint64 {
		GinkgoHelper()
		stat, err := system.System{}.Stat(path)
		Expect(err).NotTo(HaveOccurred())
		return stat.Dev
	}

	It("are an empty list if it is not used", func() {
		root.Open(201, 3, file, 7000091)
		root.Open(201, 4, "socket:[7]", 9) // cannot be resolved: closed meanwhile
		Expect(users(disk)).To(BeEmpty())
	})

	It("are processes of this VM that have it mounted", func() {
		mounted := Mount(7000092, diskNumbers, "/", "/var/vcap/store", "ext4")
		root.Add(Process{ID: 202, Parent: 200, Name: "monit", Mounts: []string{mounted}})
		root.Add(Process{ID: 301, Parent: 300, Name: "monit", Mounts: []string{mounted}})
		Expect(users(disk)).To(Equal([]string{"process 202 (monit) has it mounted at /var/vcap/store"}))
	})

	It("are processes with an open file on a mount of it, which need not be a mount of the process", func() {
		root.Add(Process{ID: 300, Parent: 1, Name: "other", Mounts: []string{InVM(vmB), Mount(7000092, diskNumbers, "/", "/mnt", "ext4")}})
		root.Open(201, 7, file, 7000092)
		Expect(users(disk)).To(Equal([]string{"process 201 (shell) uses " + file}))
	})

	It("are processes with a working directory or root directory on it", func() {
		id, err := system.System{}.MountID(string(root))
		Expect(err).NotTo(HaveOccurred())
		root.Add(Process{ID: 200, Parent: 1, Name: "runsvdir", Namespace: "vm", Mounts: []string{
			InVM(vmA), Mount(id, diskNumbers, "/", "/data", "xfs"),
		}})
		root.Link(string(root), "proc/201/cwd")
		Expect(users(disk)).To(HaveExactElements(
			"process 200 (runsvdir) has it mounted at /data", "process 201 (shell) uses "+string(root)))
		root.Link("/proc", "proc/201/cwd")
		root.Link(string(root), "proc/201/root")
		Expect(users(disk)).To(ContainElement("process 201 (shell) uses " + string(root)))
	})

	It("are processes with a file or directory in its filesystem that is no longer mounted at any path", func() {
		root.Open(201, 7, file, 7000777)
		Expect(users(deviceOf(file))).To(Equal([]string{"process 201 (shell) uses " + file}))
		root.Remove("proc/201/fd/7")
		root.Link(string(root), "proc/201/cwd")
		Expect(users(deviceOf(file))).To(Equal([]string{"process 201 (shell) uses " + string(root)}))
	})

	It("are processes that opened the device itself", func() {
		if os.Geteuid() != 0 {
			Skip("needs root: creates a device node")
		}
		node := root.Path("dev-disk")
		Expect(unix.Mknod(node, unix.S_IFBLK|0o600, int(disk))).To(Succeed())
		root.Open(201, 7, node, 7000091)
		Expect(users(disk)).To(Equal([]string{"process 201 (shell) uses " + node}))
		Expect(users(unix.Mkdev(8, 17))).To(BeEmpty())
	})

	It("are looked for without asking filesystems that may not respond", func() {
		root.Open(201, 7, file, 7000093)
		root.Open(201, 8, file, 7000094)
		root.Open(300, 7, file, 7000093)
		sys := failAt(root, "/proc/201/fd/7", unix.EIO)
		Expect(read(sys).Users(vmA, disk)).To(BeEmpty())
		sys = failAt(root, "/proc/201/fd/8", unix.EIO)
		Expect(read(sys).Users(vmA, disk)).To(BeEmpty())
	})

	It("are not processes with stale files of a network filesystem", func() {
		root.Open(201, 7, file, 7000777)
		Expect(read(failAt(root, "/proc/201/fd/7", unix.ESTALE)).Users(vmA, deviceOf(file))).To(BeEmpty())
		Expect(read(failAt(root, "/proc/201/cwd", unix.ESTALE)).Users(vmA, disk)).To(BeEmpty())
	})

	DescribeTable("are not processes that exit, or close files, meanwhile", func(path string) {
		root.Open(201, 7, file, 7000777)
		for _, err := range []error{unix.ESRCH, fs.ErrNotExist} {
			Expect(read(failAt(root, path, err)).Users(vmA, deviceOf(file))).To(BeEmpty())
		}
	},
		Entry("the directory of descriptors", "/proc/201/fd"),
		Entry("the mount ID", "/proc/201/fdinfo/7"),
		Entry("the file", "/proc/201/fd/7"),
	)

	It("include a process that closed another file meanwhile", func() {
		root.Open(201, 6, file, 7000777)
		root.Open(201, 7, file, 7000777)
		Expect(read(failAt(root, "/proc/201/fd/6", unix.ENOENT)).Users(vmA, deviceOf(file))).To(HaveLen(1))
	})

	It("are unknown if a process of the VM is protected", func() {
		_, err := read(failAt(root, "/proc/201/fd", unix.EACCES)).Users(vmA, disk)
		Expect(err).To(MatchError(ContainSubstring("find the files of process 201 (shell): ")))
	})

	It("are unknown without a mount ID", func() {
		root.Open(201, 7, file, 7000777)
		root.Write("proc/201/fdinfo/7", "pos:\t0\n")
		_, err := read(root.System()).Users(vmA, disk)
		Expect(err).To(MatchError(ContainSubstring("no mnt_id")))
	})

	It("are found only completely", func() {
		root.Open(201, 6, filepath.Join("/proc", "self"), 7000091)
		root.Open(201, 7, file, 7000777)
		ExpectNoWrongAnswer(root.System(), func(sys system.System) (any, error) {
			table, err := process.Read(sys)
			if err != nil {
				return nil, err
			}
			return table.Users(vmA, deviceOf(file))
		})
	})
})
