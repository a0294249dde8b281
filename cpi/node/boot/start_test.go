//go:build linux

package boot

import (
	"os"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/agentsettings"
)

// overlayCalls are the calls that mount an overlay.
func overlayCalls(directory string) []string {
	return []string{"mount /bosh/new", "mount " + directory, "umount /bosh/new"}
}

// copyCalls are the calls that copy a directory from the image.
func copyCalls(name, directory string) []string {
	return []string{"exec /bin/cp", "syncfs /bosh/ephemeral-disk/" + name + ".new", "fsync /bosh/ephemeral-disk", "mount " + directory}
}

var _ = Describe("The start of a VM", func() {
	var root fakeRoot
	BeforeEach(func() { root = newStemcellRoot() })

	It("mounts and configures the VM's files in this order, and becomes the init program", func() {
		Expect(root.expectBoot()).To(Equal("vm-start: first start: copying /var/vcap from the stemcell\n"))
		Expect(root.calls()).To(Equal(slices.Concat(
			[]string{"exec /bin/cat", "umount /etc/resolv.conf", "umount /etc/hosts", "umount /etc/hostname"},
			[]string{"mount /bosh/new", "mount /bosh/new/podinfo/labels", "mount /etc", "umount /bosh/new"},
			overlayCalls("/root"), overlayCalls("/opt"), overlayCalls("/usr/local"),
			copyCalls("vcap", "/var/vcap"),
			copyCalls("ca-certificates", "/usr/local/share/ca-certificates"),
			[]string{"fsync /var/vcap/bosh/agent.json.new", "fsync /var/vcap/bosh"},
			[]string{"fsync /var/vcap/bosh/warden-cpi-agent-env.json.new", "fsync /var/vcap/bosh"},
			[]string{"mount /dev/bosh", "fallocate /bosh/ephemeral-disk/reserve.new/space", "unshare ", "init in kubernetes"},
		)))
		Expect(root.exists("bosh/new")).To(BeFalse())
	})

	It("sets the sticky bit of /dev/shm, which may be a volume of the Pod", func() {
		root.mkdir("dev/shm")
		Expect(os.Chmod(root.path("dev/shm"), 0o777)).To(Succeed())
		root.expectBoot()
		info, err := os.Stat(root.path("dev/shm"))
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Mode() & (os.ModeSticky | os.ModePerm)).To(Equal(os.ModeSticky | 0o777))
	})

	It("empties /dev/shm, which is that of the Pod", func() {
		root.write("dev/shm/segment/of-the-last-boot", "")
		root.expectBoot()
		Expect(os.ReadDir(root.path("dev/shm"))).To(BeEmpty())
	})

	It("makes device nodes usable", func() {
		root.setInit(`PATH=$HOST_PATH; findmnt -no OPTIONS "$root/dev/bosh" >>"$root/calls"`)
		c := root.start(volumes + `mount -o remount,bind,nodev,ro,noexec "$root/dev/bosh"`)
		Expect(c.wait()).To(Succeed(), c.output.String)
		Expect(root.calls()).To(ContainElement(And(
			HavePrefix("rw,"), ContainSubstring("noexec"), Not(ContainSubstring("nodev")))))
	})

	It("keeps the Pod's own mounts visible", func() {
		root.setInit(`PATH=$HOST_PATH; cat "$root/etc/podinfo/labels" >>"$root/calls"`)
		root.expectBoot()
		Expect(root.calls()).To(ContainElement("of the Pod"))
	})

	It("creates directories for changes with the mode of the original directory", func() {
		Expect(os.Chmod(root.path("usr/local"), os.ModeSticky|0o750)).To(Succeed())
		root.expectBoot()
		info, err := os.Stat(root.path("bosh/ephemeral-disk/changes/usr/local/upper"))
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Mode()).To(Equal(os.ModeDir | os.ModeSticky | 0o750))
	})

	It("continues if it is not allowed to mount an overlay, and logs the consequence once", func() {
		output := root.expectBoot("FAIL_CALLS=mount /bosh/new", "FAIL_ERRNO=1")
		Expect(output).To(HavePrefix("vm-start: changes outside of /var/vcap are lost when the VM restarts: " +
			"mount /bosh/new: operation not permitted\nvm-start: first start"))
		Expect(root.exists("bosh/new")).To(BeFalse())
	})

	It("replaces the files in /etc that the kubelet mounted by writable files with the same content", func() {
		root.setInit(`PATH=$HOST_PATH; cat "$root"/etc/{hosts,resolv.conf} >>"$root/calls"; echo of the VM >"$root/etc/hosts"`)
		root.expectBoot()
		Expect(root.calls()).To(ContainElements("10.0.0.1 agent-a", "nameserver 10.96.0.10"))
		Expect(root.read("kubelet/hosts")).To(Equal("10.0.0.1 agent-a\n"))
		Expect(root.read("bosh/ephemeral-disk/changes/etc/upper/hosts")).To(Equal("of the VM\n"))
	})

	It("does not change files in /etc that the kubelet did not mount", func() {
		root.write("etc/hosts", "of the stemcell, no newline")
		c := root.start(`mount -t tmpfs tmpfs "$root/dev/bosh"`)
		Expect(c.wait()).To(Succeed(), c.output.String)
		Expect(root.read("etc/hosts")).To(Equal("of the stemcell, no newline"))
	})

	It("writes the agent's settings and configuration to the ephemeral disk", func() {
		root.expectBoot()
		const bosh = "bosh/ephemeral-disk/vcap/bosh/"
		Expect(root.read(bosh + "agent.json")).To(And(ContainSubstring(`"ServiceManager":"systemd"`), ContainSubstring(`"SkipDiskSetup":true`)))
		Expect(root.exists(bosh + "agent.json.new")).To(BeFalse())
		// The agent reads its settings from this path.
		Expect(agentsettings.ConfigPatch).To(ContainSubstring(`"/var/vcap/bosh/warden-cpi-agent-env.json"`))
		Expect(root.read(bosh + "warden-cpi-agent-env.json")).To(Equal(root.read("bosh/settings/settings.json")))
		info, err := os.Stat(root.path(bosh + "warden-cpi-agent-env.json"))
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Mode().Perm()).To(BeEquivalentTo(0o600), "the settings contain credentials")
	})

	It("fails if it cannot parse the stemcell's agent.json", func() {
		root.write("var/vcap/bosh/agent.json", "{")
		c := root.start(volumes)
		Expect(c.wait()).NotTo(Succeed())
		Expect(c.output.String()).To(ContainSubstring("read the stemcell's agent.json: not valid JSON"))
		Expect(root.read("bosh/ephemeral-disk/vcap/bosh/agent.json")).To(Equal("{"))
		Expect(root.calls()).NotTo(ContainElement(HavePrefix("init")))
	})

	It("keeps all files of the VM, except those that a boot removes", func() {
		root.setInit(`PATH=$HOST_PATH
			[[ -e $root/etc/ssh ]] && exec cat "$root"/var/vcap/jobs "$root"/etc/{passwd,ssh} "$root"/usr/local/share/*/* >>"$root/calls"
			echo of the VM >"$root/etc/ssh"; echo jumpbox >"$root/etc/passwd"; echo deployed >"$root/var/vcap/jobs"
			echo trusted >"$root/usr/local/share/ca-certificates/trusted.crt"
			mkdir -p "$root/var/vcap/data/sys/run/monit"`)
		root.expectBoot()
		root.restart()
		Expect(root.expectBoot()).To(BeEmpty())
		Expect(root.calls()).To(ContainElements("of the VM", "jumpbox", "deployed", "own", "trusted", "update-ca-certificates"))
		Expect(root.exists("bosh/ephemeral-disk/vcap/data/sys/run")).To(BeFalse())
		Expect(root.exists("bosh/ephemeral-disk/vcap/data")).To(BeTrue())
		Expect(root.read("etc/passwd")).To(HavePrefix("root:"), "the image")
	})

	It("updates no trusted certificates if there are none", func() {
		root.remove("usr/local/share/ca-certificates/own.crt")
		root.expectBoot()
		root.restart()
		root.expectBoot()
		Expect(root.calls()).NotTo(ContainElement("update-ca-certificates"))
	})

	It("updates the trusted certificates after the last one was removed", func() {
		root.remove("usr/local/share/ca-certificates/own.crt")
		root.setInit(`mkdir -p "$root/etc/ssl/certs"; echo trusted >"$root/etc/ssl/certs/trusted.pem"`)
		root.expectBoot()
		root.restart()
		root.expectBoot()
		Expect(root.calls()).To(ContainElement("update-ca-certificates"))
	})

	It("logs that trusted certificates cannot be updated", func() {
		root.expectBoot()
		root.write("bin/update-ca-certificates", "#!/bin/bash\necho no space >&2; exit 1\n")
		Expect(root.expectBoot()).To(Equal("vm-start: cannot update the trusted certificates: no space\n"))
	})

	It("needs no program for trusted certificates", func() {
		root.remove("bin/update-ca-certificates")
		root.expectBoot()
		Expect(root.exists("bosh/ephemeral-disk/ca-certificates")).To(BeFalse())
	})

	It("writes and syncs nothing if all files are up to date", func() {
		root.expectBoot()
		root.restart()
		root.expectBoot()
		Expect(root.calls()).NotTo(ContainElement(ContainSubstring("sync")))
		Expect(root.calls()).NotTo(ContainElement(HavePrefix("fallocate")))
	})

	DescribeTable("restores agent.json from the image if a power failure damaged it", func(damaged string) {
		root.write("bosh/ephemeral-disk/vcap/bosh/agent.json", damaged)
		Expect(root.expectBoot()).To(ContainSubstring(
			"agent.json is damaged, for example by a power failure: restoring it from the stemcell"))
		Expect(root.read("bosh/ephemeral-disk/vcap/bosh/agent.json")).To(And(
			ContainSubstring(`"ServiceManager":"systemd"`), ContainSubstring(`"SkipDiskSetup":true`)))
	},
		Entry("and it is empty", ""),
		Entry("and it is incomplete", `{"Platform": {"Linux"`),
		Entry("and it has zero bytes", "\x00\x00\x00\x00"),
	)

	It("starts over after an interrupted first start", func() {
		names := []string{"vcap.new", "ca-certificates.new", "reserve.new"}
		for _, name := range names {
			root.write("bosh/ephemeral-disk/"+name+"/partial", "")
		}
		root.expectBoot()
		for _, name := range names {
			Expect(root.exists("bosh/ephemeral-disk/"+name)).To(BeFalse(), name)
		}
		Expect(root.exists("bosh/ephemeral-disk/vcap/partial")).To(BeFalse())
		Expect(root.exists("bosh/ephemeral-disk/ca-certificates/partial")).To(BeFalse())
	})

	It("completes the agent's files after an interrupted start", func() {
		root.write("bosh/ephemeral-disk/vcap/bosh/agent.json", "{}")
		root.expectBoot()
		Expect(root.read("bosh/ephemeral-disk/vcap/bosh/agent.json")).To(ContainSubstring(`"SkipDiskSetup":true`))
		Expect(root.exists("bosh/ephemeral-disk/vcap/bosh/warden-cpi-agent-env.json")).To(BeTrue())
	})

	It("keeps monit's record of stopped jobs", func() {
		root.write("etc/passwd", "daemon:x:1:1::/:/bin/false\nroot:x:0:0:root:/opt:/bin/bash\n")
		root.expectBoot()
		Expect(os.Readlink(root.path("bosh/ephemeral-disk/changes/opt/upper/.monit.state"))).To(Equal("/bosh/ephemeral-disk/monit.state"))
	})

	It("records that the jobs of a new VM are stopped, but not in later starts", func() {
		const record = "bosh/ephemeral-disk/vcap/monit/stopped"
		root.expectBoot()
		Expect(root.exists(record)).To(BeTrue())
		root.remove(record) // like the agent when it starts the jobs
		root.expectBoot()
		Expect(root.exists(record)).To(BeFalse())
	})
})
