package node_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/cpi/node"
)

// The kernel kills programs when the memory of a node or a VM is used up. The failure of such a program does not answer a question.
var _ = Describe("If any program is killed that a node program starts,", func() {
	// programsOfCheck is more than the number of programs that one check of a device's users runs. Such checks are repeated.
	const programsOfCheck = 10

	// addUser adds a process of the VM that has an open file on the disk.
	addUser := func(root fakeRoot) {
		GinkgoHelper()
		root.addProcess(200, 100, "dd", inVMA)
		Expect(os.Symlink(root.path("devices"), root.path("proc/200/cwd"))).To(Succeed())
	}

	It("a used device does not pass the exclusivity check", func() {
		for number := range programsOfCheck {
			root := newFakeRoot()
			major, minor := root.filesystemNumber()
			root.addDevice("devices/disk-1", major, minor, mib, "")
			addUser(root)
			root.killProgram(number + 1)
			r := root.start(node.ExclusivityCheck(), attachment...)
			r.waitUntilOrExit(func() bool { return root.countPrograms() > 2*programsOfCheck })
			Expect(root.hasState("killed")).To(BeTrue())
			Expect(root.exists("devices/disk-1")).To(BeTrue())
		}
	})

	It("an exclusivity check does not free the loop device of a running attachment", func() {
		forEachProgram(func(number int) fakeRoot {
			root := newFakeRoot()
			root.write("dev/loop-control", "c 10 237\n")
			root.startAttachment(attachment)
			root.killProgram(number)
			root.run(node.ExclusivityCheck(), attachment...)
			Expect(root.loops()).To(HaveLen(1))
			return root
		})
	})

	It("an attachment does not exit while its device is used", func() {
		for number := range programsOfCheck {
			root := newFakeRoot()
			major, minor := root.filesystemNumber()
			root.addDevice("dev/volume", major, minor, 8*mib, "ext4 - 8388608\n")
			root.killProgram(0)
			r := root.startAttachment(attachment)
			addUser(root)
			root.killProgram(number + 1)
			r.signal(syscall.SIGTERM)
			r.waitUntil(func() bool { return root.countPrograms() > 2*programsOfCheck })
			Expect(root.hasState("killed")).To(BeTrue())
			Expect(root.exists("devices/disk-1")).To(BeTrue())
		}
	})

	It("an attachment that restarts keeps the node and the loop device that the VM uses", func() {
		forEachProgram(func(number int) fakeRoot {
			root := newFakeRoot()
			root.write("dev/loop-control", "c 10 237\n")
			root.startAttachment(attachment).kill()
			root.setState("busy/7:0", "")
			root.addProcess(200, 100, "postgres", "100 1 7:0 / /var/vcap/store rw", inVMA)
			root.killProgram(number)
			r := root.start(node.Attach(), attachment...)
			r.waitUntilOrExit(root.isLocked)
			Expect(root.loops()).To(HaveLen(1))
			Expect(root.read("devices/disk-1")).To(Equal("b 7 0\n"))
			return root
		})
	})

	It("a filesystem from an interrupted mkfs is not used", func() {
		forEachProgram(func(number int) fakeRoot {
			root := newFakeRoot()
			root.addDevice("dev/volume", 8, 16, 8*mib, "")
			root.setState("exit/mkfs.ext4", "1")
			root.run(node.Attach(), attachment...)
			root.clearState("exit/mkfs.ext4")
			root.setState("log", "")
			disk, err := os.OpenFile(filepath.Join(root.state, "disks/8:16"), os.O_WRONLY, 0)
			Expect(err).NotTo(HaveOccurred())
			_, err = disk.WriteString("ext4 - 8384512\n")
			Expect(err).NotTo(HaveOccurred())
			Expect(disk.Close()).To(Succeed())
			root.killProgram(number)
			r := root.start(node.Attach(), attachment...)
			r.waitUntilOrExit(root.isLocked)
			if root.exists("devices/disk-1") {
				Expect(root.calls()).To(ContainElement(HavePrefix("mkfs.ext4")))
			}
			return root
		})
	})

	It("a VM does not restart instead of a nested container, and is not considered restarted", func() {
		forEachProgram(func(number int) fakeRoot {
			root := newFakeRoot()
			init, nested := root.startVMProcess("runsvdir", "1", ""), root.startVMProcess("init of a container", "21 1", "")
			root.shareNamespace(init)
			root.killProgram(number)
			status, output := root.run(node.Reboot(), "STOP_TIMEOUT=1", "VM=bosh/agent-a", "CONTAINER=c0ffee")
			if status == 0 {
				Expect(output).NotTo(ContainSubstring("already restarted"))
				Expect(init.wasKilled()).To(BeTrue(), output)
			}
			Expect(syscall.Kill(nested.pid, 0)).To(Succeed())
			return root
		})
	})

	// startVM calls a function of vm-start.sh, and prints "started" after it, in a new VM with a disk.
	startVM := func(number int, libraries, function, knownDisks string) (root fakeRoot, started bool, output string) {
		GinkgoHelper()
		root = newFakeRoot()
		root.write("etc/podinfo/labels", "of the Pod")
		root.write("proc/self/mountinfo", "40 1 0:60 / "+root.path("etc/podinfo/labels")+" ro\n")
		root.mkdir("sys/fs/cgroup")
		root.addMount("sys/fs/cgroup")
		root.setUpCgroup2("17\n", "memory\n")
		root.mkdir("dev/bosh")
		root.addMount("dev/bosh")
		root.addDevice("dev/bosh/disk-1", 8, 16, mib, "")
		root.lockDisk("disk-1")
		root.write("var/vcap/bosh/managed_disk_settings.json", "disk-1")
		root.write("var/vcap/bosh/persistent_disk_hints.json", knownDisks)
		root.write("bosh/settings/mount-options", "")
		root.mkdir("bosh/ephemeral-disk")
		root.write("started", "#!/bin/bash\necho started\n")
		root.write("systemd", root.read("started"))
		root.write("etc/hosts", "10.0.0.1 agent-a\n")
		root.addMount("etc/hosts")
		root.write("etc/resolv.conf", "nameserver 10.96.0.10\n")
		root.killProgram(number)
		_, output = root.callFunction("files "+libraries, `
			log() { echo "$*" >&2; }
			ephemeral_disk=$root/bosh/ephemeral-disk settings=$root/bosh/settings devices=$root/dev/bosh agent_dir=$root/var/vcap/bosh
			`+function, "TMPDIR="+root.path("tmp"))
		return root, strings.HasSuffix(output, "started\n"), output
	}

	DescribeTable("a VM does not start without", func(libraries, function string) {
		// effects returns the calls that change mounts or namespaces.
		effects := func(root fakeRoot) (effects []string) {
			for _, call := range root.calls() {
				switch program, _, _ := strings.Cut(call, " "); program {
				case "mount", "umount", "unshare", "update-ca-certificates":
					effects = append(effects, temporaryName.ReplaceAllString(call, "/tmp/NAME"))
				}
			}
			return effects
		}
		const knownDisks = `{"disk-1": {"ID": "disk-1"}}`
		reference, started, output := startVM(0, libraries, function, knownDisks)
		Expect(started).To(BeTrue(), output)
		Expect(effects(reference)).NotTo(BeEmpty())
		forEachProgram(func(number int) fakeRoot {
			root, started, output := startVM(number, libraries, function, knownDisks)
			if started {
				Expect(effects(root)).To(Equal(effects(reference)), output)
			}
			Expect(root.read("var/vcap/bosh/managed_disk_settings.json")).To(Equal("disk-1"))
			return root
		})
	},
		Entry("its own files in /etc", "etc", `unmount_etc_files; "$root/started"`),
		Entry("its files outside of /var/vcap", "mounts reserve state", `persist_changes; "$root/started"`),
		Entry("its files outside of /var/vcap, on a full disk", "mounts reserve state", `
			mount() { [[ $* != *changes/etc/work* ]] || return 32; command mount "$@"; }
			echo 0 1048576 0 0 >"$FAKE_STATE/disk-space"
			persist_changes; "$root/started"`),
		Entry("its trusted certificates", "state", `mkdir "$ephemeral_disk/ca-certificates"; mount_certificates; "$root/started"`),
		Entry("its disk", "device lock json persistent-disks", `mount_persistent_disk; "$root/started"`),
		Entry("its cgroups", "init cgroups", `exec_init "$root/started"`),
		Entry("the preparations for systemd", "mounts init cgroups", `mkdir "$root/run"; start_init "$root/systemd"`),
	)

	It("a VM does not start in the middle of a migration of its disk", func() {
		forEachProgram(func(number int) fakeRoot {
			root, started, output := startVM(number, "device lock json persistent-disks", `mount_persistent_disk; "$root/started"`,
				`{"disk-1": {"ID": "disk-1"}, "disk-2": {"ID": "disk-2"}}`)
			Expect(started).To(BeFalse(), output)
			return root
		})
	})
})

// temporaryName matches the names that mktemp creates.
var temporaryName = regexp.MustCompile(`/tmp/tmp\.\w+`)
