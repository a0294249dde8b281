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
	"bosh-kubernetes-cpi/cpi/node"
)

// newStemcellRoot returns the root of a new container with a stemcell image. The VM's Secret contains default settings.
func newStemcellRoot() fakeRoot {
	GinkgoHelper()
	root := newFakeRoot()
	rootUser, err := user.LookupId("0")
	Expect(err).NotTo(HaveOccurred())
	for _, directory := range []string{
		rootUser.HomeDir, "run", "dev/bosh", "bosh/ephemeral-disk", "var/vcap/store", "var/vcap/data/sys/run/monit", "bin",
	} {
		root.mkdir(directory)
	}
	for name, content := range map[string]string{
		"resolv.conf": "nameserver 10.96.0.10\nsearch bosh.svc cluster.local\n", "hosts": "10.0.0.1 agent-a\n", "hostname": "agent-a\n",
	} {
		root.write("etc/"+name, content)
		root.addMount("etc/" + name)
	}
	root.addMount("dev/bosh")
	root.write("var/vcap/bosh/agent.json", `{"Platform": {"Linux": {"ServiceManager": "systemd"}}}`)
	root.write("usr/sbin/runsvdir-start", "#!/bin/bash\necho \"init in $container\" >>\"$FAKE_STATE/log\"\n")
	root.write("usr/local/share/ca-certificates/own.crt", "own")
	files, err := agentsettings.Options{Mbus: "nats://nats:pw@10.0.0.6:4222"}.Files(agentsettings.VM{AgentID: "a"})
	Expect(err).NotTo(HaveOccurred())
	for name, content := range files {
		root.write("bosh/settings/"+name, string(content))
	}
	return root
}

// copyFromImageCalls returns the calls that copy_from_image makes.
func copyFromImageCalls(directory, name string) []string {
	return []string{
		"cp -a " + directory + " /bosh/ephemeral-disk/" + name + ".new",
		"sync --file-system /bosh/ephemeral-disk/" + name + ".new",
		"sync /bosh/ephemeral-disk",
	}
}

// updateCalls returns the calls that update_file makes for a file with other content.
func updateCalls(file string) []string {
	return []string{"cmp --silent - " + file, "sync " + file + ".new", "sync " + filepath.Dir(file)}
}

const makeReserve = "fallocate --length 8MiB /bosh/ephemeral-disk/reserve.new/space"

// overlayCalls is the number of calls that mount overlays over the stemcell's directories in these tests.
const overlayCalls = 3 * 3

// enterCgroupNamespace is the call that creates the VM's cgroup namespace.
const enterCgroupNamespace = "unshare --cgroup /bin/bash -euo pipefail -c "

// addMount adds a mount at this path.
func (f fakeRoot) addMount(target string) {
	GinkgoHelper()
	mounts, err := os.ReadFile(filepath.Join(f.state, "mounts"))
	Expect(err).NotTo(HaveOccurred())
	f.setState("mounts", string(mounts)+f.path(target)+" - -\n")
}

// runVMStart runs vm-start.sh, including the init program that replaces it. It removes the warning about open files, which depends on the
// host, from the output.
func (f fakeRoot) runVMStart(init ...string) (status int, output string) {
	GinkgoHelper()
	status, output = f.run(append(node.VMStart(), init...), "TMPDIR="+f.path("tmp"))
	return status, openFilesWarning.ReplaceAllString(output, "")
}

var openFilesWarning = regexp.MustCompile(`vm-start: programs can open .* files, .*\n`)

// expectBoot runs vm-start.sh and expects it to succeed.
func (f fakeRoot) expectBoot(init ...string) {
	GinkgoHelper()
	status, output := f.runVMStart(init...)
	Expect(status).To(BeZero(), output)
}

// restartContainer returns the root of a new container with the image and ephemeral disk of the old one, but without its mounts.
func restartContainer(old fakeRoot) fakeRoot {
	GinkgoHelper()
	const trusted = "bosh/ephemeral-disk/changes/usr/local/upper/share/ca-certificates"
	old.remove(trusted)
	Expect(os.Rename(old.path(trusted+".hidden"), old.path(trusted))).To(Succeed())
	next := newStemcellRoot()
	Expect(os.Remove(next.path("bosh/ephemeral-disk"))).To(Succeed())
	Expect(os.Rename(old.path("bosh/ephemeral-disk"), next.path("bosh/ephemeral-disk"))).To(Succeed())
	return next
}

// expectInitStarted expects that the last call started the init program.
func (f fakeRoot) expectInitStarted() {
	GinkgoHelper()
	calls := f.calls()
	Expect(calls[len(calls)-1]).To(Equal("init in kubernetes"))
}

var _ = Describe("vm-start.sh", func() {
	var root fakeRoot
	BeforeEach(func() { root = newStemcellRoot() })

	It("sets the sticky bit of /dev/shm, which may be a volume of the Pod", func() {
		root := newStemcellRoot()
		root.mkdir("dev/shm")
		Expect(os.Chmod(root.path("dev/shm"), 0o777)).To(Succeed())
		root.expectBoot()
		info, err := os.Stat(root.path("dev/shm"))
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Mode() & (os.ModeSticky | os.ModePerm)).To(Equal(os.ModeSticky | 0o777))
	})

	It("mounts and configures the VM's files in this order, and becomes the init program", func() {
		status, output := root.runVMStart()
		Expect(status).To(BeZero(), output)
		Expect(output).To(Equal("vm-start: first start: copying /var/vcap from the stemcell\n"))
		calls := root.calls()
		Expect(calls[:3]).To(Equal([]string{"umount /etc/resolv.conf", "umount /etc/hosts", "umount /etc/hostname"}))
		Expect(calls[3+overlayCalls:]).To(Equal(slices.Concat(
			copyFromImageCalls("/var/vcap", "vcap"),
			[]string{"mount --bind /bosh/ephemeral-disk/vcap /var/vcap"},
			copyFromImageCalls("/usr/local/share/ca-certificates", "ca-certificates"),
			[]string{"mount --bind /bosh/ephemeral-disk/ca-certificates /usr/local/share/ca-certificates"},
			updateCalls("/var/vcap/bosh/agent.json"),
			updateCalls("/var/vcap/bosh/warden-cpi-agent-env.json"),
			updateCalls("/usr/local/sbin/mount"),
			updateCalls("/usr/local/sbin/reboot"),
			[]string{"mount -o remount,bind,dev,rw /dev/bosh", makeReserve, "unshare --cgroup true", enterCgroupNamespace, "init in kubernetes"},
		)))
	})

	It("mounts overlays with changed files, and keeps the Pod's own mounts visible", func() {
		root.write("etc/podinfo/labels", "of the Pod")
		root.write("proc/self/mountinfo", "40 1 0:60 / "+root.path("etc/podinfo/labels")+" ro\n")
		root.expectBoot()
		Expect(root.calls()[3:9]).To(HaveExactElements(
			MatchRegexp(`^mount -t overlay -o lowerdir=/etc,upperdir=/bosh/ephemeral-disk/changes/etc/upper,`+
				`workdir=/bosh/ephemeral-disk/changes/etc/work,index=off overlay /tmp/tmp\.\w+$`),
			MatchRegexp(`^mount --bind /etc/podinfo/labels /tmp/tmp\.\w+/podinfo/labels$`),
			MatchRegexp(`^mount --rbind /tmp/tmp\.\w+ /etc$`),
			MatchRegexp(`^umount --lazy /tmp/tmp\.\w+$`),
			MatchRegexp(`^mount -t overlay -o lowerdir=/root,`), ContainSubstring("--rbind"),
		))
		Expect(os.ReadDir(root.path("tmp"))).To(BeEmpty())
	})

	It("creates directories for changes with the mode of the original directory", func() {
		Expect(os.Chmod(root.path("usr/local"), 0o750)).To(Succeed())
		root.expectBoot()
		info, err := os.Stat(root.path("bosh/ephemeral-disk/changes/usr/local/upper"))
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Mode().Perm()).To(BeEquivalentTo(0o750))
	})

	It("continues if it is not allowed to mount an overlay, and logs the consequence once", func() {
		status, output := root.callFunction("mounts reserve state", `
			log() { printf '%s\n' "$*"; }
			mount() { echo "permission denied"; return 1; }
			mkdir -p "$root/opt"
			ephemeral_disk=$root/bosh/ephemeral-disk persist_changes`)
		Expect(status).To(BeZero(), output)
		Expect(output).To(Equal("changes outside of /var/vcap are lost when the VM restarts: permission denied\n"))
		Expect(os.ReadDir(root.path("tmp"))).To(BeEmpty())
	})

	It("keeps the content of files in /etc that the kubelet mounted, and does not change other files", func() {
		root.expectBoot()
		Expect(root.read("etc/hosts")).To(Equal("10.0.0.1 agent-a\n"))
		Expect(root.read("etc/resolv.conf")).To(Equal("nameserver 10.96.0.10\nsearch bosh.svc cluster.local\n"))

		root = newStemcellRoot()
		root.setState("mounts", root.path("dev/bosh")+" - -\n")
		root.write("etc/hosts", "of the stemcell, no newline")
		root.expectBoot()
		Expect(root.read("etc/hosts")).To(Equal("of the stemcell, no newline"))
	})

	It("writes the agent's settings and configuration to the ephemeral disk", func() {
		root.expectBoot()
		const bosh = "bosh/ephemeral-disk/vcap/bosh/"
		Expect(root.read(bosh + "agent.json")).To(And(ContainSubstring(`"ServiceManager": "systemd"`), ContainSubstring(`"SkipDiskSetup": true`)))
		Expect(root.exists(bosh + "agent.json.new")).To(BeFalse())
		// The agent reads its settings from this path.
		Expect(agentsettings.ConfigPatch).To(ContainSubstring(`"/var/vcap/bosh/warden-cpi-agent-env.json"`))
		Expect(root.read("var/vcap/bosh/warden-cpi-agent-env.json")).To(Equal(root.read("bosh/settings/settings.json")))
		info, err := os.Stat(root.path("var/vcap/bosh/warden-cpi-agent-env.json"))
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Mode().Perm()).To(BeEquivalentTo(0o600), "the settings contain credentials")
	})

	It("fails if it cannot parse agent.json", func() {
		root.write("var/vcap/bosh/agent.json", "{")
		status, output := root.runVMStart()
		Expect(status).NotTo(BeZero())
		Expect(output).To(ContainSubstring("agent.json is not valid JSON"))
		Expect(root.read("var/vcap/bosh/agent.json")).To(Equal("{"))
		Expect(root.calls()).NotTo(ContainElement(HavePrefix("init")))
	})

	It("keeps all files of the VM, except those that a boot removes", func() {
		root.expectBoot()
		root.write("bosh/ephemeral-disk/vcap/jobs", "deployed")
		root.write("bosh/ephemeral-disk/vcap/data/sys/run/monit/pid", "17")
		root.write("bosh/ephemeral-disk/ca-certificates/trusted.crt", "trusted")
		root.write("etc/passwd", "jumpbox")
		root.write("etc/ssh/host_key", "of the VM")

		next := restartContainer(root)
		status, output := next.runVMStart()
		Expect(status).To(BeZero())
		Expect(output).To(BeEmpty())
		Expect(next.calls()[3+overlayCalls:][:3]).To(Equal([]string{
			"mount --bind /bosh/ephemeral-disk/vcap /var/vcap",
			"mount --bind /bosh/ephemeral-disk/ca-certificates /usr/local/share/ca-certificates",
			"update-ca-certificates ",
		}))
		Expect(next.read("var/vcap/jobs")).To(Equal("deployed"))
		Expect(next.read("etc/passwd")).To(Equal("jumpbox"))
		Expect(next.read("etc/ssh/host_key")).To(Equal("of the VM"))
		Expect(next.exists("var/vcap/data/sys/run")).To(BeFalse())
		Expect(next.exists("var/vcap/data")).To(BeTrue())
		Expect(next.read("usr/local/share/ca-certificates/trusted.crt")).To(Equal("trusted"))
	})

	It("writes and syncs nothing if all files are up to date", func() {
		root.expectBoot()
		next := restartContainer(root)
		next.expectBoot()
		Expect(next.calls()).NotTo(ContainElement(HavePrefix("sync")))
		Expect(next.calls()).NotTo(ContainElement(HavePrefix("fallocate")))
	})

	DescribeTable("restores agent.json from the image if a power failure damaged it", func(damaged string) {
		root.write("bosh/ephemeral-disk/vcap/bosh/agent.json", damaged)
		status, output := root.runVMStart()
		Expect(status).To(BeZero(), output)
		Expect(output).To(ContainSubstring("agent.json is damaged, for example by a power failure: restoring it from the stemcell"))
		Expect(root.read("var/vcap/bosh/agent.json")).To(And(
			ContainSubstring(`"ServiceManager": "systemd"`), ContainSubstring(`"SkipDiskSetup": true`)))
	},
		Entry("and it is empty", ""),
		Entry("and it is incomplete", `{"Platform": {"Linux"`),
		Entry("and it has zero bytes", "\x00\x00\x00\x00"),
	)

	Describe("on the ephemeral disk", func() {
		// setFree sets the ephemeral disk's free blocks (of 1 MiB), inodes and free inodes.
		setFree := func(blocks, inodes, free int) {
			GinkgoHelper()
			root.setState("disk-space", fmt.Sprintf("%d %d %d %d\n", blocks, mib, inodes, free))
		}

		DescribeTable("removes its reserve only when the disk is full:", func(blocks, inodes, free int, full bool) {
			root.write("bosh/ephemeral-disk/reserve/space", "")
			setFree(blocks, inodes, free)
			status, output := root.runVMStart()
			Expect(status).To(BeZero(), output)
			Expect(root.exists("bosh/ephemeral-disk/reserve")).To(Equal(!full))
			Expect(strings.Contains(output, "the VM's ephemeral disk is full")).To(Equal(full), output)
		},
			Entry("no space", 7, 1000, 1000, true),
			Entry("too few inodes", 8, 1000, 127, true),
			Entry("not with enough of both", 8, 1000, 128, false),
			Entry("not if the filesystem reports no inodes", 8, 0, 0, false),
		)

		DescribeTable("creates a reserve for the next start", func(blocks, inodes, free int, created bool) {
			setFree(blocks, inodes, free)
			root.expectBoot()
			Expect(root.exists("bosh/ephemeral-disk/reserve/space")).To(Equal(created))
			if created {
				Expect(os.ReadDir(root.path("bosh/ephemeral-disk/reserve"))).To(HaveLen(129))
			}
		},
			Entry("if twice its size is free", 16, 1000, 256, true),
			Entry("but not if less is free", 15, 1000, 256, false),
			Entry("or if fewer inodes are free", 16, 1000, 255, false),
		)

		It("creates no reserve if the filesystem cannot allocate space", func() {
			root.setState("exit/fallocate", "1")
			root.expectBoot()
			Expect(root.exists("bosh/ephemeral-disk/reserve")).To(BeFalse())
			Expect(root.exists("bosh/ephemeral-disk/reserve.new")).To(BeFalse())
		})
	})

	It("starts over after an interrupted first start", func() {
		for _, name := range []string{"vcap.new", "ca-certificates.new", "reserve.new"} {
			root.write("bosh/ephemeral-disk/"+name+"/partial", "")
		}
		root.expectBoot()
		for _, name := range []string{"vcap.new", "ca-certificates.new", "reserve.new"} {
			Expect(root.exists("bosh/ephemeral-disk/"+name)).To(BeFalse(), name)
		}
		Expect(root.exists("var/vcap/partial")).To(BeFalse())
		Expect(root.exists("usr/local/share/ca-certificates/partial")).To(BeFalse())
	})

	It("completes the agent's files after an interrupted start", func() {
		root.write("bosh/ephemeral-disk/vcap/bosh/agent.json", "{}")
		root.expectBoot()
		Expect(root.read("bosh/ephemeral-disk/vcap/bosh/agent.json")).To(ContainSubstring(`"SkipDiskSetup": true`))
		Expect(root.exists("bosh/ephemeral-disk/vcap/bosh/warden-cpi-agent-env.json")).To(BeTrue())
	})

	DescribeTable("lets the kernel kill one process, and not the VM, when the VM's memory is used up", func(cgroup, file string) {
		root.write("proc/self/cgroup", "0::"+cgroup+"\n")
		root.write(file, "1\n")
		root.expectBoot()
		Expect(root.read(file)).To(Equal("0\n"))
	},
		Entry("if all cgroups of the node are visible", "/kubepods/c0ffee", "sys/fs/cgroup/kubepods/c0ffee/memory.oom.group"),
		Entry("if only its own cgroup is visible", "/", "sys/fs/cgroup/memory.oom.group"),
	)

	It("logs that the VM restarts when its memory is used up if it cannot change that", func() {
		root.write("proc/self/cgroup", "0::/\n")
		root.write("sys/fs/cgroup/memory.oom.group", "1\n")
		status, output := root.callFunction("oom", `
			log() { printf '%s\n' "$*"; }
			echo() { return 1; } # as if the kernel rejects the write
			disable_group_kill`)
		Expect(status).To(BeZero(), output)
		Expect(output).To(Equal("the whole VM restarts when its memory is used up: cannot write memory.oom.group of its cgroup\n"))
	})

	DescribeTable("lets programs open as many files as on other VMs", func(current, setResult, requested, message string) {
		root.write("raised", "")
		status, out := root.callFunction("limits", `
			log() { printf '%s\n' "$*"; }
			ulimit() {
				case $* in
					-Hn) echo `+current+` ;;
					"-Hn "*) echo "$2" >>"$root/raised"; `+setResult+` ;;
				esac
			}
			raise_limits`)
		Expect(status).To(BeZero(), out)
		Expect(root.read("raised")).To(Equal(requested))
		Expect(out).To(ContainSubstring(message))
	},
		Entry("if the container runtime sets a lower limit", "20000", "true", "524288\n", ""),
		Entry("without lowering a higher limit", "1048576", "true", "", ""),
		Entry("without limiting an unlimited number", "unlimited", "true", "", ""),
		Entry("or logs the limit that it is not allowed to raise", "20000", "false", "524288\n", "programs can open 20000 files, not 524288"),
	)

	It("keeps monit's record of stopped jobs", func() {
		root.expectBoot()
		rootUser, err := user.LookupId("0")
		Expect(err).NotTo(HaveOccurred())
		Expect(os.Readlink(root.path(filepath.Join(rootUser.HomeDir, ".monit.state")))).To(Equal(root.path("bosh/ephemeral-disk/monit.state")))
	})

	It("records that the jobs of a new VM are stopped, but not in later starts", func() {
		const record = "bosh/ephemeral-disk/vcap/monit/stopped"
		root.expectBoot()
		Expect(root.exists(record)).To(BeTrue())
		root.remove(record) // like the agent when it starts the jobs
		root.expectBoot()
		Expect(root.exists(record)).To(BeFalse())
	})

	Describe("with resolvconf", func() {
		const tail = "etc/resolvconf/resolv.conf.d/tail"
		BeforeEach(func() {
			root.write(tail, "of the stemcell builder")
			root.write("run/resolvconf/interface/eth0", "of the stemcell builder")
		})

		It("keeps the Pod's name servers if the networks have none", func() {
			root.expectBoot()
			Expect(root.read(tail)).To(Equal(root.read("etc/resolv.conf")))
			Expect(root.exists("run/resolvconf/interface/eth0")).To(BeFalse())
		})

		It("leaves the name servers to the agent if the networks have some", func() {
			root.write("bosh/settings/name-servers", "10.0.0.2")
			root.expectBoot()
			Expect(root.exists(tail)).To(BeFalse())
			Expect(root.exists("run/resolvconf/interface/eth0")).To(BeFalse())
		})
	})

	Describe("among init programs", func() {
		find := func(arguments string) string {
			GinkgoHelper()
			_, output := root.callFunction("init", "find_init "+arguments)
			return strings.TrimSuffix(strings.TrimPrefix(output, root.root), "\n")
		}

		It("finds the requested one, runit's, or /sbin/init", func() {
			Expect(find("/my/init")).To(Equal("/my/init"))
			Expect(find("''")).To(Equal("/usr/sbin/runsvdir-start"))
			Expect(os.Chmod(root.path("usr/sbin/runsvdir-start"), 0o644)).To(Succeed())
			Expect(find("")).To(Equal("/sbin/init"))
		})

		It("runs the requested one", func() {
			root.write("my/init", "#!/bin/bash\necho my init >>\"$FAKE_STATE/log\"\n")
			root.expectBoot(root.path("my/init"))
			Expect(root.calls()).To(ContainElement("my init"))
		})
	})

	It("fails without changes if the image lacks a file of a stemcell", func() {
		status, output := root.runVMStart("/my/init")
		Expect(status).To(Equal(1))
		Expect(output).To(Equal("vm-start: the stemcell has no init program /my/init; set cloud_properties.init [init-not-found]\n"))
		Expect(os.Remove(root.path("var/vcap/bosh/agent.json"))).To(Succeed())
		status, output = root.runVMStart()
		Expect(status).To(Equal(1))
		Expect(output).To(MatchRegexp(`^vm-start: the image is not a BOSH stemcell: .* not found \[image-not-stemcell\]\n$`))
		Expect(root.calls()).To(HaveExactElements(""))
	})
})

var _ = Describe("vm-start.sh with systemd", func() {
	var root fakeRoot
	BeforeEach(func() {
		root = newStemcellRoot()
		Expect(os.Rename(root.path("usr/sbin"), root.path("usr/lib"))).To(Succeed())
		Expect(os.Rename(root.path("usr/lib/runsvdir-start"), root.path("usr/lib/systemd"))).To(Succeed())
		root.mkdir("sbin")
		Expect(os.Symlink("../usr/lib/systemd", root.path("sbin/init"))).To(Succeed())
		root.mkdir("sys/fs/cgroup")
		root.write("run/of-the-image", "")
		root.mkdir("run/secrets/token")
		root.write("proc/self/mountinfo", "40 1 0:60 / "+root.path("run/secrets/token")+" ro\n41 1 0:61 / "+root.path("running")+" ro\n")
	})

	It("mounts an empty /run with only the Pod's mounts, and makes mounts shared", func() {
		status, output := root.runVMStart()
		Expect(status).To(BeZero(), output)
		calls := root.calls()
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
		Expect(root.exists("run/of-the-image")).To(BeFalse())
		Expect(os.Readlink(root.path("run/systemd/system/systemd-udevd.service"))).To(Equal("/dev/null"))
		Expect(root.exists("run/systemd/resolved.conf.d/kubernetes.conf")).To(BeFalse())
	})

	It("configures the Pod's name servers until the agent configures others", func() {
		Expect(os.Rename(root.path("etc/resolv.conf"), root.path("etc/stub-resolv.conf"))).To(Succeed())
		root.write("systemd/resolve/stub-resolv.conf", root.read("etc/stub-resolv.conf"))
		Expect(os.Symlink(root.path("systemd/resolve/stub-resolv.conf"), root.path("etc/resolv.conf"))).To(Succeed())
		root.expectBoot()
		Expect(root.read("run/systemd/resolved.conf.d/kubernetes.conf")).To(Equal(
			"[Resolve]\nFallbackDNS=10.96.0.10 \nDomains= bosh.svc cluster.local\n"))
	})
})

var _ = Describe("The wrappers of mount and umount", func() {
	var root fakeRoot
	BeforeEach(func() {
		root = newStemcellRoot()
		for _, program := range []string{"mount", "umount"} {
			root.write("bin/"+program, "#!/bin/bash\necho \"real $0 $*\" | sed \"s#$BOSH_NODE_ROOT##g\" >>\"$FAKE_STATE/log\"\n")
		}
		root.expectBoot()
		root.setState("log", "")
	})
	// run runs the wrapper, and returns the calls of the real programs.
	run := func(program string, arguments ...string) []string {
		GinkgoHelper()
		status, output := root.run(append([]string{root.path("usr/local/sbin/" + program)}, arguments...))
		Expect(status).To(BeZero(), output)
		return root.calls()
	}

	It("bind a disk that is a directory", func() {
		root.addMount("dev/bosh/disk-1")
		Expect(run("mount", root.path("dev/bosh/disk-1"), "/var/vcap/store")).To(Equal([]string{
			"real /bin/mount --bind /dev/bosh/disk-1 /var/vcap/store",
		}))
	})

	It("unmount such a disk where it is bound, in reverse order, but not at its own path", func() {
		root.addMount("dev/bosh/disk-1")
		root.write("proc/self/mountinfo", strings.Join([]string{
			"50 1 0:50 /one " + root.path("dev/bosh/disk-1") + " rw",
			"51 1 0:50 /one /var/vcap/store rw",
			"52 1 0:50 /another /var/vcap/data rw",
			"53 1 0:50 /one /mnt rw",
			"",
		}, "\n"))
		Expect(run("umount", root.path("dev/bosh/disk-1"))).To(Equal([]string{"real /bin/umount /mnt /var/vcap/store"}))
	})

	It("do not unmount such a disk if it is not bound", func() {
		root.addMount("dev/bosh/disk-1")
		root.write("proc/self/mountinfo", "50 1 0:50 /one "+root.path("dev/bosh/disk-1")+" rw\n")
		Expect(run("umount", root.path("dev/bosh/disk-1"))).To(HaveExactElements(""))
	})

	DescribeTable("add the option bind to the remount of a directory", func(mountinfo string, arguments []string, passed string) {
		root.write("proc/self/mountinfo", mountinfo)
		Expect(run("mount", arguments...)).To(Equal([]string{"real /bin/mount " + passed}))
	},
		Entry("with the arguments of the agent", "50 1 8:1 /pods/volume/tmp /tmp rw\n",
			[]string{"", "/tmp", "-o", "remount", "-o", "nodev"}, " /tmp -o remount -o nodev -o bind"),
		Entry("with all options in one argument", "50 1 8:1 /pods/volume/tmp /tmp rw\n",
			[]string{"-o", "remount,nodev", "/tmp"}, "-o remount,nodev /tmp -o bind"),
		Entry("unless that option is set", "50 1 8:1 /pods/volume/tmp /tmp rw\n",
			[]string{"-o", "remount,bind,ro", "/tmp"}, "-o remount,bind,ro /tmp"),
		Entry("but not for the root of a filesystem", "50 1 8:16 / /store rw\n",
			[]string{"-o", "remount,ro", "/store"}, "-o remount,ro /store"),
		Entry("or for the root of a filesystem that is mounted over a directory", "50 1 8:1 /tmp /tmp rw\n51 1 0:9 / /tmp rw\n",
			[]string{"-o", "remount,ro", "/tmp"}, "-o remount,ro /tmp"),
	)

	It("pass on all other arguments unchanged", func() {
		Expect(run("mount", root.path("dev/bosh/disk-2"), "/var/vcap/store")).To(Equal([]string{
			"real /bin/mount /dev/bosh/disk-2 /var/vcap/store",
		}))
		root.setState("log", "")
		Expect(run("umount", "/var/vcap/store")).To(Equal([]string{"real /bin/umount /var/vcap/store"}))
		_, err := exec.LookPath(root.path("usr/local/sbin/mount"))
		Expect(err).NotTo(HaveOccurred())
	})
})
