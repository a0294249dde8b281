//go:build linux

package boot

import (
	"context"
	"os/exec"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/boot/mounts"
	"bosh-kubernetes-cpi/cpi/node/system"
)

var _ = Describe("The wrappers of mount and umount", func() {
	var root fakeRoot
	BeforeEach(func() {
		root = newFakeRoot()
		for _, program := range []string{"mount", "umount"} {
			root.write("bin/"+program, "#!/bin/bash\nroot=${0%/bin/*}\necho \"/bin/${0##*/} $*\" | sed \"s#$root##g\"\n")
		}
	})
	// wrap returns what the wrapper runs.
	wrap := func(program string, arguments ...string) string {
		GinkgoHelper()
		all, err := mounts.Read(system.System{Root: string(root)})
		Expect(err).NotTo(HaveOccurred())
		passed, run := wrapMount(all, program, arguments)
		if !run {
			return ""
		}
		return strings.Join(append([]string{"/bin/" + program}, passed...), " ")
	}
	// run runs the wrapper in another process, and returns what the real program prints.
	run := func(program string, arguments ...string) string {
		GinkgoHelper()
		wrapper := exec.Command("/proc/self/exe", append([]string{program}, arguments...)...)
		wrapper.Env = []string{"WRAPPER_TEST_ROOT=" + string(root), "PATH=/usr/bin:/bin", "GOCOVERDIR=" + GinkgoT().TempDir()}
		output, err := wrapper.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(output))
		return strings.TrimSuffix(string(output), "\n")
	}

	It("bind a disk that is a directory", func() {
		root.addMount("dev/bosh/disk-1", "0:50")
		Expect(run("mount", "/dev/bosh/disk-1", "/var/vcap/store")).To(Equal("/bin/mount --bind /dev/bosh/disk-1 /var/vcap/store"))
	})

	DescribeTable("unmount such a disk where it is bound, in reverse order, but not at its own path", func(lines []string, expected string) {
		for _, line := range lines {
			fields := strings.Fields(line)
			fields[4] = root.path(fields[4])
			root.write("proc/self/mountinfo", root.read("proc/self/mountinfo")+strings.Join(fields, " ")+"\n")
		}
		Expect(wrap("umount", "/dev/bosh/disk-1")).To(Equal(expected))
	},
		Entry("at several paths", []string{
			"50 1 0:50 /one /dev/bosh/disk-1 rw",
			"51 1 0:50 /one /var/vcap/store rw",
			"52 1 0:50 /another /var/vcap/data rw",
			"53 1 0:50 /one /mnt\\040disk rw",
		}, "/bin/umount /mnt disk /var/vcap/store"),
		Entry("at no path", []string{"50 1 0:50 /one /dev/bosh/disk-1 rw"}, ""),
	)

	DescribeTable("add the option bind to the remount of a directory", func(mountinfo string, arguments []string, passed string) {
		root.write("proc/self/mountinfo", strings.ReplaceAll(mountinfo, "TARGET", root.path("/tmp")))
		Expect(wrap("mount", arguments...)).To(Equal("/bin/mount " + passed))
	},
		Entry("with the arguments of the agent", "50 1 8:1 /pods/volume/tmp TARGET rw\n",
			[]string{"", "/tmp", "-o", "remount", "-o", "nodev"}, " /tmp -o remount -o nodev -o bind"),
		Entry("with all options in one argument", "50 1 8:1 /pods/volume/tmp TARGET rw\n",
			[]string{"-o", "remount,nodev", "/tmp"}, "-o remount,nodev /tmp -o bind"),
		Entry("with the options after -o", "50 1 8:1 /pods/volume/tmp TARGET rw\n",
			[]string{"-oremount,nodev", "/tmp"}, "-oremount,nodev /tmp -o bind"),
		Entry("unless that option is set", "50 1 8:1 /pods/volume/tmp TARGET rw\n",
			[]string{"-o", "remount,bind,ro", "/tmp"}, "-o remount,bind,ro /tmp"),
		Entry("but not for the root of a filesystem", "50 1 8:16 / TARGET rw\n",
			[]string{"-o", "remount,ro", "/tmp"}, "-o remount,ro /tmp"),
		Entry("or for the root of a filesystem that is mounted over a directory", "50 1 8:1 /tmp TARGET rw\n51 1 0:9 / TARGET rw\n",
			[]string{"-o", "remount,ro", "/tmp"}, "-o remount,ro /tmp"),
	)

	It("pass on all other arguments unchanged", func() {
		Expect(wrap("mount", "/dev/bosh/disk-2", "/var/vcap/store")).To(Equal("/bin/mount /dev/bosh/disk-2 /var/vcap/store"))
		Expect(run("umount", "/var/vcap/store")).To(Equal("/bin/umount /var/vcap/store"))
		Expect(run("mount")).To(Equal("/bin/mount "))
		Expect(wrap("mount")).To(Equal("/bin/mount"))
	})

	It("run nothing if there is nothing to unmount", func() {
		root.addMount("dev/bosh/disk-1", "0:50")
		Expect(run("umount", "/dev/bosh/disk-1")).To(BeEmpty())
		sys := system.System{Root: string(root), Before: func(call, _ string) error {
			Expect(call).NotTo(Equal("execve"))
			return nil
		}}
		Expect(MountWrapper(sys, "umount", []string{"/dev/bosh/disk-1"}, nil)).To(Succeed())
	})

	It("fail if they cannot find out what is mounted", func() {
		sys := system.System{Root: string(root), Before: func(call, _ string) error {
			Expect(call).NotTo(Equal("execve"))
			return unix.EIO
		}}
		Expect(MountWrapper(sys, "mount", []string{"/dev/bosh/disk-1", "/mnt"}, nil)).To(MatchError(unix.EIO))
	})
})

var _ = Describe("The programs that restart a VM", func() {
	var (
		root  fakeRoot
		calls []string
		sys   system.System
	)
	BeforeEach(func() {
		root, calls = newFakeRoot(), nil
		for process, name := range map[string]string{
			"1": "runsvdir", "10": "runsv", "11": "svlogd", "12": "monit", "13": "reboot", "14": "halt", "15": "postgres",
		} {
			root.write("proc/"+process+"/comm", name+"\n")
		}
		sys = system.System{Root: string(root), Before: func(call, path string) error {
			switch call {
			case "kill", "exec", "start":
				calls = append(calls, call+" "+path)
				return unix.ESRCH
			}
			return nil
		}}
	})

	It("stop services and jobs, wait until they exit, and end the init program", func() {
		root.write("etc/service/monit/run", "")
		pauses := 0
		err := rebootVM(context.Background(), sys, func(context.Context, time.Duration) error {
			pauses++
			root.remove("proc/12")
			if pauses == 2 {
				root.remove("proc/15")
			}
			return nil
		})
		Expect(err).To(MatchError(unix.ESRCH)) // of the fake kill
		Expect(calls).To(Equal([]string{"exec sv", "kill /proc/12", "kill /proc/15", "kill /proc/1"}))
		Expect(pauses).To(Equal(2))
	})

	It("end the init program after ten seconds if a job does not exit", func() {
		var waited time.Duration
		_ = rebootVM(context.Background(), sys, func(_ context.Context, duration time.Duration) error {
			waited += duration
			return nil
		})
		Expect(waited).To(Equal(10 * time.Second))
		Expect(calls[len(calls)-1]).To(Equal("kill /proc/1"))
	})

	It("end the init program if the processes are unknown", func() {
		root.remove("proc")
		_ = rebootVM(context.Background(), sys, system.Pause)
		Expect(calls).To(Equal([]string{"kill /proc/1"}))
	})

	It("run in the background, so that the session that called them can end", func() {
		command := exec.Command("/proc/self/exe", "shutdown", "-r", "now")
		command.Env = []string{"WRAPPER_TEST_ROOT=" + string(root), "GOCOVERDIR=" + GinkgoT().TempDir()}
		output, err := command.CombinedOutput() // returns when nothing has its output open
		Expect(err).NotTo(HaveOccurred())
		Expect(string(output)).To(BeEmpty())
		Eventually(func() bool { return root.exists("rebooted") }).Should(BeTrue())
		Expect(root.read("proc/self/comm")).To(Equal("reboot"))
		Expect(root.read("rebooted")).To(Equal("kill /proc/1"))
	})
})
