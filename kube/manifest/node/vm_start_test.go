package node_test

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/agentsettings"
	"bosh-kubernetes-cpi/kube/manifest/node"
)

// newStemcellRoot makes a world that is a machine's container from a stemcell's image, at its start, with the Secret
// of a machine that was asked for nothing special.
func newStemcellRoot() fakeRoot {
	GinkgoHelper()
	w := newFakeRoot()
	root, err := user.LookupId("0")
	Expect(err).NotTo(HaveOccurred())
	for _, folder := range []string{root.HomeDir, "run", "dev/bosh", "bosh/machine", "var/vcap/store", "var/vcap/data/sys/run/monit", "bin"} {
		w.mkdir(folder)
	}
	for name, content := range map[string]string{
		"resolv.conf": "nameserver 10.96.0.10\nsearch bosh.svc cluster.local\n", "hosts": "10.0.0.1 agent-a\n", "hostname": "agent-a\n",
	} {
		w.write("etc/"+name, content)
		w.addMount("etc/" + name)
	}
	w.addMount("dev/bosh")
	w.write("var/vcap/bosh/agent.json", `{"Platform": {"Linux": {"ServiceManager": "systemd"}}}`)
	w.write("usr/sbin/runsvdir-start", "#!/bin/bash\necho \"init in $container\" >>\"$STAND_INS/log\"\n")
	w.write("usr/local/share/ca-certificates/own.crt", "own")
	files, err := agentsettings.Options{Mbus: "nats://nats:pw@10.0.0.6:4222"}.Files(agentsettings.VM{AgentID: "a"})
	Expect(err).NotTo(HaveOccurred())
	for name, content := range files {
		w.write("bosh/settings/"+name, string(content))
	}
	return w
}

// seedCalls are the calls by which a first start gives the volume its copy of a folder of the image.
func seedCalls(folder, name string) []string {
	return []string{"cp -a " + folder + " /bosh/machine/" + name + ".new", "sync --file-system /bosh/machine/" + name + ".new", "sync /bosh/machine"}
}

// updateCalls are the calls by which a file gets another content.
func updateCalls(file string) []string {
	return []string{"cmp --silent - " + file, "sync " + file + ".new", "sync " + filepath.Dir(file)}
}

const makeReserve = "fallocate --length 8MiB /bosh/machine/reserve.new/space"

// overlayCalls is how many calls it takes to lay changes over the directories that a stemcell of these tests has.
const overlayCalls = 3 * 3

// enterCgroupNamespace is the call with which a machine gets cgroups of its own.
const enterCgroupNamespace = "unshare --cgroup /bin/bash -euo pipefail -c "

// addMount says that something is mounted there.
func (w fakeRoot) addMount(place string) {
	GinkgoHelper()
	mounts, err := os.ReadFile(filepath.Join(w.state, "mounts"))
	Expect(err).NotTo(HaveOccurred())
	w.setState("mounts", string(mounts)+w.path(place)+" - -\n")
}

// runVMStart runs the start script until it is the init program. What it says of open files depends on where the tests run.
func (w fakeRoot) runVMStart(init ...string) (status int, output string) {
	GinkgoHelper()
	status, output = w.run(append(node.VMStart(), init...), "TMPDIR="+w.path("tmp"))
	return status, openFilesWarning.ReplaceAllString(output, "")
}

var openFilesWarning = regexp.MustCompile(`machine-start: a program can have .* open files .*\n`)

// expectBoot is boot of a machine that has nothing to complain of.
func (w fakeRoot) expectBoot(init ...string) {
	GinkgoHelper()
	status, output := w.runVMStart(init...)
	Expect(status).To(BeZero(), output)
}

// restartContainer is another container of the same image with the volume of the first, once that has ended with its mounts.
func restartContainer(w fakeRoot) fakeRoot {
	GinkgoHelper()
	const trusted = "bosh/machine/changes/usr/local/upper/share/ca-certificates"
	w.remove(trusted)
	Expect(os.Rename(w.path(trusted+".hidden"), w.path(trusted))).To(Succeed())
	next := newStemcellRoot()
	Expect(os.Remove(next.path("bosh/machine"))).To(Succeed())
	Expect(os.Rename(w.path("bosh/machine"), next.path("bosh/machine"))).To(Succeed())
	return next
}

// expectInitStarted fails unless the last thing that happened is the start of the init program.
func (w fakeRoot) expectInitStarted() {
	GinkgoHelper()
	calls := w.calls()
	Expect(calls[len(calls)-1]).To(Equal("init in kubernetes"))
}

var _ = Describe("A machine's start", func() {
	var w fakeRoot
	BeforeEach(func() { w = newStemcellRoot() })

	It("keeps files in shared memory for their owners, as on a machine, also when it is a volume of the Pod", func() {
		w := newStemcellRoot()
		w.mkdir("dev/shm")
		Expect(os.Chmod(w.path("dev/shm"), 0o777)).To(Succeed())
		w.expectBoot()
		info, err := os.Stat(w.path("dev/shm"))
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Mode() & (os.ModeSticky | os.ModePerm)).To(Equal(os.ModeSticky | 0o777))
	})

	It("brings what is the machine's own, in this order, and becomes the init program", func() {
		status, output := w.runVMStart()
		Expect(status).To(BeZero(), output)
		Expect(output).To(Equal("machine-start: first start: copying /var/vcap from the stemcell\n"))
		calls := w.calls()
		Expect(calls[:3]).To(Equal([]string{"umount /etc/resolv.conf", "umount /etc/hosts", "umount /etc/hostname"}))
		Expect(calls[3+overlayCalls:]).To(Equal(slices.Concat(
			seedCalls("/var/vcap", "vcap"),
			[]string{"mount --bind /bosh/machine/vcap /var/vcap"},
			seedCalls("/usr/local/share/ca-certificates", "ca-certificates"),
			[]string{"mount --bind /bosh/machine/ca-certificates /usr/local/share/ca-certificates"},
			updateCalls("/var/vcap/bosh/agent.json"),
			updateCalls("/var/vcap/bosh/warden-cpi-agent-env.json"),
			updateCalls("/usr/local/sbin/mount"),
			[]string{"mount -o remount,bind,dev,rw /dev/bosh", makeReserve, "unshare --cgroup true", enterCgroupNamespace, "init in kubernetes"},
		)))
	})

	It("lays over directories what is changed in them, beneath the Pod's own mounts", func() {
		w.write("etc/podinfo/labels", "of the Pod")
		w.write("proc/self/mountinfo", "40 1 0:60 / "+w.path("etc/podinfo/labels")+" ro\n")
		w.expectBoot()
		Expect(w.calls()[3:9]).To(HaveExactElements(
			MatchRegexp(`^mount -t overlay -o lowerdir=/etc,upperdir=/bosh/machine/changes/etc/upper,workdir=/bosh/machine/changes/etc/work,index=off overlay /tmp/tmp\.\w+$`),
			MatchRegexp(`^mount --bind /etc/podinfo/labels /tmp/tmp\.\w+/podinfo/labels$`),
			MatchRegexp(`^mount --rbind /tmp/tmp\.\w+ /etc$`),
			MatchRegexp(`^umount --lazy /tmp/tmp\.\w+$`),
			MatchRegexp(`^mount -t overlay -o lowerdir=/root,`), ContainSubstring("--rbind"),
		))
		Expect(os.ReadDir(w.path("tmp"))).To(BeEmpty())
	})

	It("has the changes belong to whom the directory belongs", func() {
		Expect(os.Chmod(w.path("usr/local"), 0o750)).To(Succeed())
		w.expectBoot()
		info, err := os.Stat(w.path("bosh/machine/changes/usr/local/upper"))
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Mode().Perm()).To(BeEquivalentTo(0o750))
	})

	It("goes on where it may not mount an overlay, and says what that means, once", func() {
		status, output := w.callFunction("mounts reserve state", `
			say() { printf '%s\n' "$*"; }
			mount() { echo "permission denied"; return 1; }
			mkdir -p "$root/opt"
			volume=$root/bosh/machine keep_changes`)
		Expect(status).To(BeZero(), output)
		Expect(output).To(Equal("a restart undoes what is changed outside of /var/vcap: permission denied\n"))
		Expect(os.ReadDir(w.path("tmp"))).To(BeEmpty())
	})

	It("keeps what the kubelet wrote into files in /etc, and leaves those that it did not mount", func() {
		w.expectBoot()
		Expect(w.read("etc/hosts")).To(Equal("10.0.0.1 agent-a\n"))
		Expect(w.read("etc/resolv.conf")).To(Equal("nameserver 10.96.0.10\nsearch bosh.svc cluster.local\n"))

		w = newStemcellRoot()
		w.setState("mounts", w.path("dev/bosh")+" - -\n")
		w.write("etc/hosts", "of the stemcell, no newline")
		w.expectBoot()
		Expect(w.read("etc/hosts")).To(Equal("of the stemcell, no newline"))
	})

	It("gives the agent its settings and its configuration, on the machine's volume", func() {
		w.expectBoot()
		const bosh = "bosh/machine/vcap/bosh/"
		Expect(w.read(bosh + "agent.json")).To(And(ContainSubstring(`"ServiceManager": "systemd"`), ContainSubstring(`"SkipDiskSetup": true`)))
		Expect(w.exists(bosh + "agent.json.new")).To(BeFalse())
		// Where the agent looks is where they are.
		Expect(agentsettings.ConfigPatch).To(ContainSubstring(`"/var/vcap/bosh/warden-cpi-agent-env.json"`))
		Expect(w.read("var/vcap/bosh/warden-cpi-agent-env.json")).To(Equal(w.read("bosh/settings/settings.json")))
		info, err := os.Stat(w.path("var/vcap/bosh/warden-cpi-agent-env.json"))
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Mode().Perm()).To(BeEquivalentTo(0o600), "they hold credentials")
	})

	It("does not go on with an agent.json that it cannot read", func() {
		w.write("var/vcap/bosh/agent.json", "{")
		status, output := w.runVMStart()
		Expect(status).NotTo(BeZero())
		Expect(output).To(ContainSubstring("agent.json is not JSON"))
		Expect(w.read("var/vcap/bosh/agent.json")).To(Equal("{"))
		Expect(w.calls()).NotTo(ContainElement(HavePrefix("init")))
	})

	It("finds the machine as it was, but for what a boot empties", func() {
		w.expectBoot()
		w.write("bosh/machine/vcap/jobs", "deployed")
		w.write("bosh/machine/vcap/data/sys/run/monit/pid", "17")
		w.write("bosh/machine/ca-certificates/trusted.crt", "trusted")
		w.write("etc/passwd", "jumpbox")
		w.write("etc/ssh/host_key", "its own")

		next := restartContainer(w)
		status, output := next.runVMStart()
		Expect(status).To(BeZero())
		Expect(output).To(BeEmpty())
		Expect(next.calls()[3+overlayCalls:][:3]).To(Equal([]string{
			"mount --bind /bosh/machine/vcap /var/vcap",
			"mount --bind /bosh/machine/ca-certificates /usr/local/share/ca-certificates",
			"update-ca-certificates ",
		}))
		Expect(next.read("var/vcap/jobs")).To(Equal("deployed"))
		Expect(next.read("etc/passwd")).To(Equal("jumpbox"))
		Expect(next.read("etc/ssh/host_key")).To(Equal("its own"))
		Expect(next.exists("var/vcap/data/sys/run")).To(BeFalse())
		Expect(next.exists("var/vcap/data")).To(BeTrue())
		Expect(next.read("usr/local/share/ca-certificates/trusted.crt")).To(Equal("trusted"))
	})

	It("writes and syncs nothing that it finds as it has to be", func() {
		w.expectBoot()
		next := restartContainer(w)
		next.expectBoot()
		Expect(next.calls()).NotTo(ContainElement(HavePrefix("sync")))
		Expect(next.calls()).NotTo(ContainElement(HavePrefix("fallocate")))
	})

	DescribeTable("restores an agent.json that a power cut has damaged from the image", func(damaged string) {
		w.write("bosh/machine/vcap/bosh/agent.json", damaged)
		status, output := w.runVMStart()
		Expect(status).To(BeZero(), output)
		Expect(output).To(ContainSubstring("agent.json is damaged, as after a power cut: restoring it from the stemcell"))
		Expect(w.read("var/vcap/bosh/agent.json")).To(And(ContainSubstring(`"ServiceManager": "systemd"`), ContainSubstring(`"SkipDiskSetup": true`)))
	},
		Entry("so that it is empty", ""),
		Entry("so that a part is missing", `{"Platform": {"Linux"`),
		Entry("so that it holds zeros", "\x00\x00\x00\x00"),
	)

	Describe("on a disk", func() {
		// space has the volume's filesystem have that many free blocks of 1 MiB, and inodes, and free inodes.
		space := func(blocks, inodes, free int) {
			GinkgoHelper()
			w.setState("space", fmt.Sprintf("%d %d %d %d\n", blocks, mib, inodes, free))
		}

		DescribeTable("gives up its reserve", func(blocks, inodes, free int, full bool) {
			w.write("bosh/machine/reserve/space", "")
			space(blocks, inodes, free)
			status, output := w.runVMStart()
			Expect(status).To(BeZero(), output)
			Expect(w.exists("bosh/machine/reserve")).To(Equal(!full))
			Expect(strings.Contains(output, "the VM's ephemeral disk is full")).To(Equal(full), output)
		},
			Entry("without space", 7, 1000, 1000, true),
			Entry("without inodes", 8, 1000, 127, true),
			Entry("but not with both", 8, 1000, 128, false),
			Entry("but not where inodes are not counted", 8, 0, 0, false),
		)

		DescribeTable("keeps a reserve for the next start", func(blocks, inodes, free int, keeps bool) {
			space(blocks, inodes, free)
			w.expectBoot()
			Expect(w.exists("bosh/machine/reserve/space")).To(Equal(keeps))
			if keeps {
				Expect(os.ReadDir(w.path("bosh/machine/reserve"))).To(HaveLen(129))
			}
		},
			Entry("with twice its space", 16, 1000, 256, true),
			Entry("but not with less", 15, 1000, 256, false),
			Entry("or with fewer inodes", 16, 1000, 255, false),
		)

		It("keeps no reserve where the filesystem does not allocate space", func() {
			w.setState("exit/fallocate", "1")
			w.expectBoot()
			Expect(w.exists("bosh/machine/reserve")).To(BeFalse())
			Expect(w.exists("bosh/machine/reserve.new")).To(BeFalse())
		})
	})

	It("begins a first start anew that was cut short", func() {
		for _, name := range []string{"vcap.new", "ca-certificates.new", "reserve.new"} {
			w.write("bosh/machine/"+name+"/half", "")
		}
		w.expectBoot()
		for _, name := range []string{"vcap.new", "ca-certificates.new", "reserve.new"} {
			Expect(w.exists("bosh/machine/"+name)).To(BeFalse(), name)
		}
		Expect(w.exists("var/vcap/half")).To(BeFalse())
		Expect(w.exists("usr/local/share/ca-certificates/half")).To(BeFalse())
	})

	It("gives the agent on the volume what a start that was cut short has not", func() {
		w.write("bosh/machine/vcap/bosh/agent.json", "{}")
		w.expectBoot()
		Expect(w.read("bosh/machine/vcap/bosh/agent.json")).To(ContainSubstring(`"SkipDiskSetup": true`))
		Expect(w.exists("bosh/machine/vcap/bosh/warden-cpi-agent-env.json")).To(BeTrue())
	})

	DescribeTable("has one process end, and not the machine, when its memory is used up", func(cgroup, group string) {
		w.write("proc/self/cgroup", "0::"+cgroup+"\n")
		w.write(group, "1\n")
		w.expectBoot()
		Expect(w.read(group)).To(Equal("0\n"))
	},
		Entry("where it sees all of the node's cgroups", "/kubepods/c0ffee", "sys/fs/cgroup/kubepods/c0ffee/memory.oom.group"),
		Entry("where it sees its own alone", "/", "sys/fs/cgroup/memory.oom.group"),
	)

	It("says that it will restart when its memory is used up, where it cannot have it otherwise", func() {
		w.write("proc/self/cgroup", "0::/\n")
		w.write("sys/fs/cgroup/memory.oom.group", "1\n")
		status, output := w.callFunction("memory", `
			say() { printf '%s\n' "$*"; }
			echo() { return 1; } # as when the kernel refuses it
			let_one_end`)
		Expect(status).To(BeZero(), output)
		Expect(output).To(Equal("its cgroup cannot be written: when its memory is used up, the whole machine restarts (memory.oom.group)\n"))
	})

	DescribeTable("has programs open as many files as on a VM", func(current, setResult, requested, message string) {
		w.write("raised", "")
		status, out := w.callFunction("limits", `
			say() { printf '%s\n' "$*"; }
			ulimit() {
				case $* in
					-Hn) echo `+current+` ;;
					"-Hn "*) echo "$2" >>"$root/raised"; `+setResult+` ;;
				esac
			}
			raise_limits`)
		Expect(status).To(BeZero(), out)
		Expect(w.read("raised")).To(Equal(requested))
		Expect(out).To(ContainSubstring(message))
	},
		Entry("where the runtime gives fewer", "20000", "true", "524288\n", ""),
		Entry("and leaves it at more", "1048576", "true", "", ""),
		Entry("and leaves it unlimited", "unlimited", "true", "", ""),
		Entry("or says how many it has, where it may not", "20000", "false", "524288\n", "20000 open files and not 524288"),
	)

	It("keeps monit's record of what was stopped", func() {
		w.expectBoot()
		root, err := user.LookupId("0")
		Expect(err).NotTo(HaveOccurred())
		Expect(os.Readlink(w.path(filepath.Join(root.HomeDir, ".monit.state")))).To(Equal(w.path("bosh/machine/monit.state")))
	})

	Describe("with resolvconf", func() {
		const tail = "etc/resolvconf/resolv.conf.d/tail"
		BeforeEach(func() {
			w.write(tail, "of the stemcell's builder")
			w.write("run/resolvconf/interface/eth0", "of the stemcell's builder")
		})

		It("keeps the Pod's name servers where networks name none", func() {
			w.expectBoot()
			Expect(w.read(tail)).To(Equal(w.read("etc/resolv.conf")))
			Expect(w.exists("run/resolvconf/interface/eth0")).To(BeFalse())
		})

		It("leaves it to the agent where they do", func() {
			w.write("bosh/settings/name-servers", "10.0.0.2")
			w.expectBoot()
			Expect(w.exists(tail)).To(BeFalse())
			Expect(w.exists("run/resolvconf/interface/eth0")).To(BeFalse())
		})
	})

	Describe("finds the init program", func() {
		find := func(arguments string) string {
			GinkgoHelper()
			_, output := w.callFunction("init", "find_init "+arguments)
			return strings.TrimSuffix(strings.TrimPrefix(output, w.root), "\n")
		}

		It("that was asked for, runit's, or any", func() {
			Expect(find("/my/init")).To(Equal("/my/init"))
			Expect(find("''")).To(Equal("/usr/sbin/runsvdir-start"))
			Expect(os.Chmod(w.path("usr/sbin/runsvdir-start"), 0o644)).To(Succeed())
			Expect(find("")).To(Equal("/sbin/init"))
		})

		It("and runs the one that was asked for", func() {
			w.write("my/init", "#!/bin/bash\necho my init >>\"$STAND_INS/log\"\n")
			w.expectBoot(w.path("my/init"))
			Expect(w.calls()).To(ContainElement("my init"))
		})
	})

	It("says what is missing of a stemcell, before it does anything", func() {
		status, output := w.runVMStart("/my/init")
		Expect(status).To(Equal(1))
		Expect(output).To(Equal("machine-start: the stemcell has no init program /my/init; set cloud_properties.init\n"))
		Expect(os.Remove(w.path("var/vcap/bosh/agent.json"))).To(Succeed())
		status, output = w.runVMStart()
		Expect(status).To(Equal(1))
		Expect(output).To(ContainSubstring("machine-start: the image is no BOSH stemcell: it has no "))
		Expect(w.calls()).To(HaveExactElements(""))
	})
})

var _ = Describe("A machine's start with systemd", func() {
	var w fakeRoot
	BeforeEach(func() {
		w = newStemcellRoot()
		Expect(os.Rename(w.path("usr/sbin"), w.path("usr/lib"))).To(Succeed())
		Expect(os.Rename(w.path("usr/lib/runsvdir-start"), w.path("usr/lib/systemd"))).To(Succeed())
		w.mkdir("sbin")
		Expect(os.Symlink("../usr/lib/systemd", w.path("sbin/init"))).To(Succeed())
		w.mkdir("sys/fs/cgroup")
		w.write("run/left-by-the-image", "")
		w.mkdir("run/secrets/token")
		w.write("proc/self/mountinfo", "40 1 0:60 / "+w.path("run/secrets/token")+" ro\n41 1 0:61 / "+w.path("running")+" ro\n")
	})

	It("gives it an empty /run but for the Pod's mounts, and shared mounts", func() {
		status, output := w.runVMStart()
		Expect(status).To(BeZero(), output)
		calls := w.calls()
		Expect(calls[slices.Index(calls, makeReserve)+1:]).To(HaveExactElements(
			MatchRegexp(`^mount -t tmpfs -o mode=0755,nosuid,nodev tmpfs /tmp/tmp\.\w+$`),
			MatchRegexp(`^mount --bind /run/secrets/token /tmp/tmp\.\w+/secrets/token$`),
			MatchRegexp(`^mount --rbind /tmp/tmp\.\w+ /run$`),
			MatchRegexp(`^umount --lazy /tmp/tmp\.\w+$`),
			Equal("mount --make-rshared /"),
			Equal("unshare --cgroup true"),
			Equal(enterCgroupNamespace),
			Equal("init in kubernetes"),
		))
		Expect(w.exists("run/left-by-the-image")).To(BeFalse())
		Expect(os.Readlink(w.path("run/systemd/system/systemd-udevd.service"))).To(Equal("/dev/null"))
		Expect(w.exists("run/systemd/resolved.conf.d/kubernetes.conf")).To(BeFalse())
	})

	It("has the Pod's name servers serve until the agent is told of others", func() {
		Expect(os.Rename(w.path("etc/resolv.conf"), w.path("etc/stub-resolv.conf"))).To(Succeed())
		w.write("systemd/resolve/stub-resolv.conf", w.read("etc/stub-resolv.conf"))
		Expect(os.Symlink(w.path("systemd/resolve/stub-resolv.conf"), w.path("etc/resolv.conf"))).To(Succeed())
		w.expectBoot()
		Expect(w.read("run/systemd/resolved.conf.d/kubernetes.conf")).To(Equal("[Resolve]\nFallbackDNS=10.96.0.10 \nDomains= bosh.svc cluster.local\n"))
	})
})

var _ = Describe("A disk that is a directory", func() {
	var w fakeRoot
	BeforeEach(func() {
		w = newStemcellRoot()
		for _, program := range []string{"mount", "umount"} {
			w.write("bin/"+program, "#!/bin/bash\necho \"real $0 $*\" | sed \"s#$BOSH_NODE_ROOT##g\" >>\"$STAND_INS/log\"\n")
		}
		w.expectBoot()
		w.setState("log", "")
	})
	// run runs what the agent finds as mount or umount, and returns the real one's call.
	run := func(program string, arguments ...string) []string {
		GinkgoHelper()
		status, output := w.run(append([]string{w.path("usr/local/sbin/" + program)}, arguments...))
		Expect(status).To(BeZero(), output)
		return w.calls()
	}

	It("is mounted by binding it", func() {
		w.addMount("dev/bosh/disk-1")
		Expect(run("mount", w.path("dev/bosh/disk-1"), "/var/vcap/store")).To(Equal([]string{"real /bin/mount --bind /dev/bosh/disk-1 /var/vcap/store"}))
	})

	It("is unmounted where it is bound, the last place first, and not where it has appeared", func() {
		w.addMount("dev/bosh/disk-1")
		w.write("proc/self/mountinfo", strings.Join([]string{
			"50 1 0:50 /one " + w.path("dev/bosh/disk-1") + " rw",
			"51 1 0:50 /one /var/vcap/store rw",
			"52 1 0:50 /another /var/vcap/data rw",
			"53 1 0:50 /one /mnt rw",
			"",
		}, "\n"))
		Expect(run("umount", w.path("dev/bosh/disk-1"))).To(Equal([]string{"real /bin/umount /mnt /var/vcap/store"}))
	})

	It("is left where it is when it is bound nowhere", func() {
		w.addMount("dev/bosh/disk-1")
		w.write("proc/self/mountinfo", "50 1 0:50 /one "+w.path("dev/bosh/disk-1")+" rw\n")
		Expect(run("umount", w.path("dev/bosh/disk-1"))).To(HaveExactElements(""))
	})

	DescribeTable("of a filesystem that is mounted again leaves the filesystem as it is", func(mountinfo string, arguments []string, called string) {
		w.write("proc/self/mountinfo", mountinfo)
		Expect(run("mount", arguments...)).To(Equal([]string{"real /bin/mount " + called}))
	},
		Entry("as the agent does it", "50 1 8:1 /pods/volume/tmp /tmp rw\n", []string{"", "/tmp", "-o", "remount", "-o", "nodev"}, " /tmp -o remount -o nodev -o bind"),
		Entry("with all options in one", "50 1 8:1 /pods/volume/tmp /tmp rw\n", []string{"-o", "remount,nodev", "/tmp"}, "-o remount,nodev /tmp -o bind"),
		Entry("also when it is asked so", "50 1 8:1 /pods/volume/tmp /tmp rw\n", []string{"-o", "remount,bind,ro", "/tmp"}, "-o remount,bind,ro /tmp"),
		Entry("but for a whole one", "50 1 8:16 / /store rw\n", []string{"-o", "remount,ro", "/store"}, "-o remount,ro /store"),
		Entry("or what is mounted over one", "50 1 8:1 /tmp /tmp rw\n51 1 0:9 / /tmp rw\n", []string{"-o", "remount,ro", "/tmp"}, "-o remount,ro /tmp"),
	)

	It("alone is treated so", func() {
		Expect(run("mount", w.path("dev/bosh/disk-2"), "/var/vcap/store")).To(Equal([]string{"real /bin/mount /dev/bosh/disk-2 /var/vcap/store"}))
		w.setState("log", "")
		Expect(run("umount", "/var/vcap/store")).To(Equal([]string{"real /bin/umount /var/vcap/store"}))
		_, err := exec.LookPath(w.path("usr/local/sbin/mount"))
		Expect(err).NotTo(HaveOccurred())
	})
})
