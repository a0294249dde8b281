//go:build linux

// Package processtest provides fake /proc directories for tests, and makes each call of a decision fail.
package processtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/system"
)

// Root is a directory that replaces /.
type Root string

// New returns a Root with an empty /proc.
func New() Root {
	ginkgo.GinkgoHelper()
	root := Root(ginkgo.GinkgoT().TempDir())
	root.Mkdir("proc")
	return root
}

// System returns a system with this root.
func (r Root) System() system.System { return system.System{Root: string(r)} }

// Path returns the path of a file below the root.
func (r Root) Path(name string) string { return filepath.Join(string(r), name) }

// Mkdir creates a directory and its parents.
func (r Root) Mkdir(name string) {
	ginkgo.GinkgoHelper()
	gomega.Expect(os.MkdirAll(r.Path(name), 0o755)).To(gomega.Succeed()) //nolint:gosec // a test directory
}

// Write creates or replaces an executable file.
func (r Root) Write(name, content string) {
	ginkgo.GinkgoHelper()
	r.Mkdir(filepath.Dir(name))
	gomega.Expect(os.WriteFile(r.Path(name), []byte(content), 0o755)).To(gomega.Succeed()) //nolint:gosec // a test directory
}

// Link creates or replaces a symbolic link.
func (r Root) Link(target, name string) {
	ginkgo.GinkgoHelper()
	r.Remove(name)
	r.Mkdir(filepath.Dir(name))
	gomega.Expect(os.Symlink(target, r.Path(name))).To(gomega.Succeed())
}

// Remove removes a file or directory with its content.
func (r Root) Remove(name string) {
	ginkgo.GinkgoHelper()
	gomega.Expect(os.RemoveAll(r.Path(name))).To(gomega.Succeed())
}

// Process is a process in /proc.
type Process struct {
	ID, Parent int
	Name       string
	InnerIDs   []int    // its process IDs in nested PID namespaces
	Namespace  string   // its mount and PID namespace; default: its own
	Mounts     []string // see Mount
}

// InVM returns the mount of the VM's device directory.
func InVM(vm string) string {
	return Mount(7000090, "0:25", "/bosh-kubernetes-cpi/"+vm, "/dev/bosh", "tmpfs")
}

// Mount returns a line of mountinfo. The IDs of real mounts are smaller than 7,000,000.
func Mount(id int, numbers, root, target, filesystem string) string {
	return fmt.Sprintf("%d 1 %s %s %s rw,relatime shared:1 - %s source rw", id, numbers, root, target, filesystem)
}

// Add adds or replaces a process. It has no working directory and no open files.
func (r Root) Add(p Process) {
	ginkgo.GinkgoHelper()
	directory := fmt.Sprintf("proc/%d", p.ID)
	r.Remove(directory)
	ids := []string{strconv.Itoa(p.ID)}
	for _, id := range p.InnerIDs {
		ids = append(ids, strconv.Itoa(id))
	}
	r.Write(directory+"/mountinfo", strings.Join(append(p.Mounts, ""), "\n"))
	r.Write(directory+"/cmdline", p.Name+"\x00")
	r.Write(directory+"/comm", p.Name+"\n")
	r.Mkdir(directory + "/fd")
	if p.Namespace == "" {
		p.Namespace = ids[0]
	}
	r.Link("mnt:["+p.Namespace+"]", directory+"/ns/mnt")
	r.Link("pid:["+p.Namespace+"]", directory+"/ns/pid")
	r.Link("/proc", directory+"/root") // without a mount in Mounts
	r.Link("/proc", directory+"/cwd")
	r.Write(directory+"/status", fmt.Sprintf("Name:\t%s\nState:\tS (sleeping)\nPPid:\t%d\nNSpid:\t%s\n",
		p.Name, p.Parent, strings.Join(ids, "\t")))
}

// Open adds an open file to a process: its descriptor, the target, and the ID of its mount.
func (r Root) Open(process, descriptor int, target string, mount int) {
	ginkgo.GinkgoHelper()
	r.Link(target, fmt.Sprintf("proc/%d/fd/%d", process, descriptor))
	r.Write(fmt.Sprintf("proc/%d/fdinfo/%d", process, descriptor), fmt.Sprintf("pos:\t0\nflags:\t0100000\nmnt_id:\t%d\nino:\t7\n", mount))
}

// ExpectNoWrongAnswer lets each call of the decision fail in turn, with several errors. The decision must return the correct answer or the
// error.
func ExpectNoWrongAnswer(sys system.System, decide func(system.System) (any, error)) {
	ginkgo.GinkgoHelper()
	correct, err := decide(sys)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	for _, errno := range []unix.Errno{unix.EIO, unix.ENOMEM, unix.EINTR} {
		for failing := 1; ; failing++ {
			var calls int
			var failed string
			sys.Before = func(call, path string) error {
				calls++
				if calls != failing {
					return nil
				}
				failed = call + " " + path
				return errno
			}
			answer, err := decide(sys)
			if failed == "" {
				gomega.Expect(failing).To(gomega.BeNumerically(">", 2), "the number of calls")
				break
			}
			if err != nil {
				gomega.Expect(errors.Is(err, errno)).To(gomega.BeTrue(), "%s: %s", failed, err)
			} else {
				gomega.Expect(answer).To(gomega.Equal(correct), "%s: %s", failed, errno)
			}
		}
	}
}
