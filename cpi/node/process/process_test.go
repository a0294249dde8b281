//go:build linux

package process_test

import (
	"io/fs"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/process"
	"bosh-kubernetes-cpi/cpi/node/system"
	. "bosh-kubernetes-cpi/test/harness/processtest"
)

const vmA, vmB = "bosh/agent-a", "bosh/agent-b"

// disk is the device of a disk, and its numbers in mountinfo.
const diskNumbers = "8:16"

var disk = unix.Mkdev(8, 16)

func idsOf(processes []process.Process) (ids []int) {
	for _, p := range processes {
		ids = append(ids, p.ID)
	}
	return ids
}

// failAt returns a system in which calls with this path fail.
func failAt(root Root, path string, err error) system.System {
	sys := root.System()
	sys.Before = func(_, called string) error {
		if called == path {
			return err
		}
		return nil
	}
	return sys
}

// afterFirst returns a system that calls change before the first call after that with the path.
func afterFirst(root Root, path string, change func()) system.System {
	sys, found := root.System(), false
	sys.Before = func(_, called string) error {
		if found && change != nil {
			change()
			change = nil
		}
		found = found || called == path
		return nil
	}
	return sys
}

func read(sys system.System) *process.Table {
	GinkgoHelper()
	table, err := process.Read(sys)
	Expect(err).NotTo(HaveOccurred())
	return table
}

var _ = Describe("The processes of a node", func() {
	var root Root
	BeforeEach(func() {
		root = New()
		root.Add(Process{ID: 1, Name: "systemd", Mounts: []string{Mount(7000020, "8:1", "/", "/", "ext4")}})
		root.Add(Process{ID: 100, Parent: 1, Name: "containerd-shim"})
		root.Add(Process{ID: 200, Parent: 100, Name: "runsvdir", InnerIDs: []int{1}, Mounts: []string{
			InVM(vmA),
			Mount(7000092, diskNumbers, "/", "/var/vcap/store", "ext4"), Mount(7000093, diskNumbers, "/", "/elsewhere", "ext4"),
		}})
		root.Add(Process{ID: 201, Parent: 200, Name: "container", InnerIDs: []int{7, 1}, Mounts: []string{
			Mount(7000094, "0:40", "/", "/", "overlay"),
		}})
		root.Add(Process{ID: 202, Parent: 201, Name: "in a container", InnerIDs: []int{8, 2}, Mounts: []string{
			Mount(7000095, diskNumbers, "/", `/data\040of\134jobs`, "ext4"),
		}})
		root.Add(Process{ID: 300, Parent: 100, Name: "systemd", InnerIDs: []int{1}, Mounts: []string{InVM(vmB)}})
		root.Add(Process{ID: 400, Parent: 1, Name: "similar", Mounts: []string{
			Mount(7000096, "0:25", "/bosh-kubernetes-cpi/bosh/agent-a", "/dev/bosh/disk-1", "tmpfs"),
		}})
		root.Mkdir("proc/500") // a process that is exiting
		root.Mkdir("proc/sys")
	})

	It("belong to a VM if they or one of their ancestors have its device directory mounted", func() {
		table := read(root.System())
		Expect(idsOf(table.OfVM(vmA))).To(Equal([]int{200, 201, 202}))
		Expect(idsOf(table.OfVM(vmB))).To(Equal([]int{300}))
		Expect(table.OfVM("bosh/agent")).To(BeEmpty())
		Expect(table.OfVM("")).To(BeEmpty())
	})

	It("have the attributes in their status", func() {
		Expect(read(root.System()).OfVM(vmA)[2]).To(Equal(process.Process{
			ID: 202, Parent: 201, Name: "in a container", VM: vmA, Level: 3, InnerID: 2,
		}))
	})

	It("include the init program of a VM, and not that of a container in it", func() {
		table := read(root.System())
		init, ok := table.InitOf(vmA)
		Expect(ok).To(BeTrue())
		Expect(init.ID).To(Equal(200))
		_, ok = table.InitOf("bosh/none")
		Expect(ok).To(BeFalse())
	})

	It("are found if a parent exits while the processes are read", func() {
		root.Add(Process{ID: 110, Parent: 150, Name: "daemon"})
		root.Add(Process{ID: 150, Parent: 200, Name: "shell"})
		sys := afterFirst(root, "/proc/110/status", func() {
			root.Remove("proc/150")
			root.Add(Process{ID: 110, Parent: 200, Name: "daemon"})
		})
		Expect(idsOf(read(sys).OfVM(vmA))).To(Equal([]int{110, 200, 201, 202}))
	})

	It("cannot be read if parents do not exist", func() {
		root.Add(Process{ID: 90, Parent: 999, Name: "orphan"})
		_, err := process.Read(root.System())
		Expect(err).To(MatchError(ContainSubstring("a parent that does not exist")))
	})

	It("may be their own ancestors after process IDs were reused", func() {
		root.Add(Process{ID: 90, Parent: 91, Name: "a"})
		root.Add(Process{ID: 91, Parent: 90, Name: "b"})
		Expect(idsOf(read(root.System()).OfVM(vmA))).To(Equal([]int{200, 201, 202}))
	})

	DescribeTable("can have namespaces that this program cannot read", func(err error) {
		Expect(idsOf(read(failAt(root, "/proc/200/ns/mnt", err)).OfVM(vmA))).To(Equal([]int{200, 201, 202}))
		Expect(idsOf(read(failAt(root, "/proc/200/root", err)).OfVM(vmA))).To(Equal([]int{200, 201, 202}))
	},
		Entry("because a security module protects them", unix.EACCES),
		Entry("because they exit", fs.ErrNotExist),
	)

	It("can be zombies, which have no mounts, and children with mounts", func() {
		Expect(idsOf(read(failAt(root, "/proc/202/mountinfo", unix.EINVAL)).OfVM(vmA))).To(Equal([]int{200, 201, 202}))
		Expect(idsOf(read(failAt(root, "/proc/200/mountinfo", unix.EINVAL)).OfVM(vmA))).To(BeEmpty())
	})

	It("can have threads that outlive the first thread", func() {
		root.Mkdir("proc/200/task/200")
		root.Open(200, 3, root.Path("proc"), 7000092)
		for _, name := range []string{"mountinfo", "fd", "fdinfo"} {
			root.Mkdir("proc/200/task/203")
			Expect(os.Rename(root.Path("proc/200/"+name), root.Path("proc/200/task/203/"+name))).To(Succeed())
		}
		table := read(failAt(root, "/proc/200/mountinfo", unix.EINVAL))
		Expect(idsOf(table.OfVM(vmA))).To(Equal([]int{200, 201, 202}))
		Expect(table.Users(vmA, disk)).To(ContainElement(api.User{Process: 200, Name: "runsvdir", Path: root.Path("proc")}))
	})

	It("are read only completely", func() {
		ExpectNoWrongAnswer(root.System(), func(sys system.System) (any, error) {
			table, err := process.Read(sys)
			if err != nil {
				return nil, err
			}
			return table.OfVM(vmA), nil
		})
	})

	DescribeTable("cannot be read if a file is damaged", func(name, content string) {
		root.Write(name, content)
		_, err := process.Read(root.System())
		Expect(err).To(MatchError(ContainSubstring("200")))
	},
		Entry("without a parent", "proc/200/status", "Name:\tinit\n"),
		Entry("with an invalid parent", "proc/200/status", "PPid:\tx\n"),
		Entry("with an incomplete mount", "proc/200/mountinfo", "90 1 0:25 / /dev/bosh rw\n"),
		Entry("with an invalid device", "proc/200/mountinfo", "90 1 x / /dev/bosh rw - tmpfs none rw\n"),
		Entry("with an invalid mount ID", "proc/200/mountinfo", "x 1 0:25 / /dev/bosh rw - tmpfs none rw\n"),
	)

	It("are reported with the path at which they have a device mounted", func() {
		Expect(read(root.System()).Mounted(disk)).To(Equal([]process.Mounted{
			{User: api.User{Process: 200, Name: "runsvdir", Path: "/var/vcap/store", Mounted: true}, VM: vmA},
			{User: api.User{Process: 202, Name: "in a container", Path: `/data of\jobs`, Mounted: true}, VM: vmA},
		}))
	})

	It("are reported once for each mount namespace", func() {
		for _, id := range []int{600, 601} {
			root.Add(Process{ID: id, Parent: 1, Name: "backup", Namespace: "shared", Mounts: []string{Mount(7000097, "8:32", "/", "/mnt", "xfs")}})
		}
		Expect(read(root.System()).Mounted(unix.Mkdev(8, 32))).To(Equal([]process.Mounted{
			{User: api.User{Process: 600, Name: "backup", Path: "/mnt", Mounted: true}},
		}))
	})

	It("can be read on this machine", func() {
		own, err := process.List(system.System{})
		Expect(err).NotTo(HaveOccurred())
		Expect(idsOf(own)).To(ContainElement(os.Getpid()))
		Expect(read(system.System{}).OfVM(vmA)).To(BeEmpty())
	})
})
