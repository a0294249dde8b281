//go:build linux

package boot

import (
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/system"
	"bosh-kubernetes-cpi/test/harness/filesystems"
)

// failEach boots VMs, and lets another call fail in each.
func failEach(root fakeRoot, mode failureMode) (boots []failedBoot) {
	GinkgoHelper()
	mode.Start, mode.Stride = filesystems.Calls()
	if os.Geteuid() == 0 {
		boots = failEachCallHere(root, mode)
	} else { // in a user namespace, which only a new process can enter
		encoded, err := json.Marshal(mode)
		Expect(err).NotTo(HaveOccurred())
		c := root.start(volumes, "FAIL_EACH_CALL="+string(encoded))
		Expect(c.wait()).To(Succeed(), c.output.String)
		Expect(json.Unmarshal([]byte(root.read("boots")), &boots)).To(Succeed())
	}
	Expect(len(boots) * mode.Stride).To(BeNumerically(">", 100))
	for _, boot := range boots {
		if boot.Error == "" {
			Expect(boot.Effects).To(Equal(boots[0].Effects), "%+v", boot)
		}
		if mode.Kill || boot.Errno == unix.EINTR {
			Expect(boot.Error).To(BeEmpty(), "%+v", boot)
		}
	}
	return boots
}

// newUsedRoot returns the root of a VM with files.
func newUsedRoot() fakeRoot {
	GinkgoHelper()
	root := newStemcellRoot()
	root.setInit(`echo of the VM >"$root/etc/vm"; echo of the VM >"$root/var/vcap/vm"`)
	root.expectBoot()
	return root
}

// expectFiles expects that a VM with the root of newUsedRoot has its files.
func (r fakeRoot) expectFiles() {
	GinkgoHelper()
	for _, name := range []string{"vcap/vm", "changes/etc/upper/vm"} {
		Expect(r.read(filepath.Join("bosh/ephemeral-disk", name))).To(Equal("of the VM\n"))
	}
}

// An incomplete answer does not count: a VM must not start without its files because the kernel could not say whether it has some.
var _ = Describe("If any system call fails once, a VM", Label("filesystems"), func() {
	It("that has files keeps them, or does not start", func() {
		root := newUsedRoot()
		for _, boot := range failEach(root, failureMode{}) {
			if boot.Error == "" {
				Expect(boot.Seen).To(Equal("of the VM\nof the VM\n"), "%+v", boot)
			}
		}
		root.expectFiles()
	})

	It("with systemd and resolvconf has all mounts and masks, or does not start", func() {
		root := newSystemdRoot()
		root.write("etc/resolvconf/resolv.conf.d/tail", "of the stemcell builder")
		root.write("run/resolvconf/interface/eth0", "of the stemcell builder")
		root.mkdir("dev/shm")
		root.write("bosh/ephemeral-disk/reserve/space", "")
		failEach(root, failureMode{})
	})

	It("that starts for the first time has complete files, or starts over", func() {
		for _, boot := range failEach(newStemcellRoot(), failureMode{First: true}) {
			Expect(boot.Incomplete).To(BeFalse(), "%+v", boot)
		}
	})
})

var _ = Describe("After a start that was killed before any of its system calls, a VM", Label("filesystems"), func() {
	It("that has files keeps them", func() {
		root := newUsedRoot()
		for _, boot := range failEach(root, failureMode{Kill: true}) {
			Expect(boot.Seen).To(Equal("of the VM\nof the VM\n"), "%+v", boot)
		}
		root.expectFiles()
	})

	It("with systemd starts", func() { failEach(newSystemdRoot(), failureMode{Kill: true}) })

	It("that had not started before has complete files", func() {
		for _, boot := range failEach(newStemcellRoot(), failureMode{First: true, Kill: true}) {
			Expect(boot.Incomplete).To(BeFalse(), "%+v", boot)
		}
	})
})

// failureMode is how boots fail.
type failureMode struct {
	First bool // each boot is the first one of a VM
	Kill  bool // at the call, the boot is killed, and a second one follows
	// Start is the number of the first call that fails, and Stride the distance to the next one.
	Start, Stride int
}

// failedBoot is a boot in which a call failed, or the boot after one that was killed; the first one is without failure.
type failedBoot struct {
	Failed     string // the call
	Errno      unix.Errno
	Kill       bool   // instead of the error
	Error      string // of Start, or "" if the init program started
	Effects    string // the calls that changed mounts
	Seen       string // the content of the VM's files when the init program started
	Incomplete bool   // /var/vcap lacks files
}

// errKilled ends a boot that is killed.
var errKilled = errors.New("killed")

// errStarted is the error of Start instead of the start of the init program.
var errStarted = errors.New("the init program started")

// failEachCallHere boots in this process, which has the coverage of the tests.
func failEachCallHere(root fakeRoot, mode failureMode) (boots []failedBoot) {
	GinkgoHelper()
	for _, variable := range [][2]string{{"PATH", "/bin"}, {"HOST_PATH", os.Getenv("PATH")}, {"BOOT_TEST_ROOT", string(root)}, {"VOLUMES", "true"}} {
		GinkgoT().Setenv(variable[0], variable[1])
	}
	output := log.Writer()
	log.SetOutput(GinkgoWriter)
	defer log.SetOutput(output)
	Expect(onMainThread(func() error {
		return inMountNamespace(func() (err error) {
			if err := mountVolumes(string(root)); err != nil {
				return err
			}
			boots, err = failEachCall(system.System{Root: string(root)}, mode)
			return err
		})
	})).To(Succeed())
	return boots
}

// writeBoots writes the result of failEachCall to a file.
func writeBoots(sys system.System, mode failureMode) error {
	boots, err := failEachCall(sys, mode)
	if err != nil {
		return err
	}
	content, err := json.Marshal(boots)
	if err != nil {
		return err
	}
	if err := os.WriteFile(sys.Path("/boots"), content, 0o600); err != nil {
		return err
	}
	os.Exit(0)
	return nil
}

// failEachCall boots in new mount namespaces of this process, and lets another call fail in each. First boots have a disk in memory, which
// is fast to sync.
func failEachCall(sys system.System, mode failureMode) (boots []failedBoot, err error) {
	if mode.First {
		if err := unix.Mount("tmpfs", sys.Path(ephemeralDisk), "tmpfs", 0, ""); err != nil {
			return nil, err
		}
	}
	for number, next := 0, mode.Start; ; number, next = next, next+mode.Stride {
		boot, failing := failedBoot{Errno: []unix.Errno{unix.EIO, unix.ENOMEM, unix.EINTR}[number%3]}, number
		if mode.First {
			if err := emptyDisk(sys); err != nil {
				return nil, err
			}
		}
		if mode.Kill {
			killed := failedBoot{Kill: true}
			if err := inMountNamespace(func() error { return killed.run(sys, number) }); err != nil {
				return nil, err
			}
			boot, failing = failedBoot{Failed: killed.Failed}, 0
		}
		if err := inMountNamespace(func() error { return boot.run(sys, failing) }); err != nil {
			return nil, err
		}
		boots = append(boots, boot)
		if number > 0 && boot.Failed == "" {
			return boots, nil
		}
	}
}

// emptyDisk makes the next boot the first one. It has a reserve already, the many files of which would be the most calls.
func emptyDisk(sys system.System) error {
	disk := sys.Path(ephemeralDisk)
	entries, err := os.ReadDir(disk)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := os.RemoveAll(filepath.Join(disk, entry.Name())); err != nil {
			return err
		}
	}
	return os.Mkdir(filepath.Join(disk, "reserve"), 0o700)
}

// run boots, and lets the call with this number fail. After a kill, nothing happens, also nothing that is deferred.
func (b *failedBoot) run(sys system.System, number int) error {
	defer func() {
		if failure := recover(); failure != nil && failure != errKilled { //nolint:errorlint // the same value
			panic(failure)
		}
	}()
	count := 0
	sys.Before = func(call, path string) error {
		count++
		if count == number {
			b.Failed = call + " " + path
		}
		switch {
		case b.Kill && b.Failed != "":
			panic(errKilled)
		case count == number:
			return b.Errno
		}
		switch call {
		case "mount", "umount", "unshare":
			b.Effects += fmt.Sprintf("%s %s\n", call, strings.TrimPrefix(path, sys.Root))
		case "execve":
			for _, file := range []string{"/etc/vm", "/var/vcap/vm"} {
				content, _ := os.ReadFile(sys.Path(file))
				b.Seen += string(content)
			}
			return errStarted
		}
		return nil
	}
	if err := Start(sys, "", os.Environ()); !errors.Is(err, errStarted) {
		b.Error = err.Error()
	}
	b.Incomplete = exists(sys, "/vcap") && !(exists(sys, "/vcap/bosh/agent.json") && exists(sys, "/vcap/monit/stopped"))
	return nil
}

func exists(sys system.System, name string) bool {
	_, err := os.Stat(sys.Path(ephemeralDisk + name))
	return err == nil
}
