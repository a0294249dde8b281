//go:build linux

package boot

import (
	"io"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/system"
)

var _ = Describe("The start of a VM from an image", func() {
	var root fakeRoot
	BeforeEach(func() { root = newStemcellRoot() })

	Describe("with resolvconf", func() {
		const tail = "/etc/resolvconf/resolv.conf.d/tail"
		BeforeEach(func() {
			root.write(tail, "of the stemcell builder")
			root.write("run/resolvconf/interface/eth0", "of the stemcell builder")
		})

		It("keeps the Pod's name servers if the networks have none", func() {
			root.expectBoot()
			Expect(root.read(tail)).To(Equal(root.read("kubelet/resolv.conf")))
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
		find := func(requested string) string {
			GinkgoHelper()
			found, err := root.newTestVM(io.Discard).findInit(requested)
			Expect(err).NotTo(HaveOccurred())
			return found
		}

		It("finds the requested one, runit's, or /sbin/init", func() {
			Expect(find("/my/init")).To(Equal("/my/init"))
			Expect(find("")).To(Equal("/usr/sbin/runsvdir-start"))
			Expect(os.Chmod(root.path("usr/sbin/runsvdir-start"), 0o644)).To(Succeed())
			Expect(find("")).To(Equal("/sbin/init"))
		})

		It("runs the requested one, without programs that end runit", func() {
			root.write("my/init", "#!/bin/bash\necho my init >>\"$BOOT_TEST_ROOT/calls\"\n")
			root.expectBoot("REQUESTED_INIT=/my/init")
			Expect(root.calls()).To(ContainElement("my init"))
			Expect(root.exists("bosh/ephemeral-disk/changes/usr/local/upper/sbin/mount")).To(BeTrue())
			Expect(root.exists("bosh/ephemeral-disk/changes/usr/local/upper/sbin/reboot")).To(BeFalse())
		})
	})

	It("fails if the image lacks a program", func() {
		root.remove("bin/cp")
		c := root.start(volumes)
		Expect(c.wait()).NotTo(Succeed())
		Expect(c.output.String()).To(HaveSuffix("error: the stemcell has no program cp\n"))
	})

	It("installs bosh-node as the programs that mount and reboot", func() {
		root.expectBoot()
		for _, name := range []string{"mount", "umount", "reboot", "halt", "poweroff", "shutdown"} {
			Expect(os.Readlink(root.path("bosh/ephemeral-disk/changes/usr/local/upper/sbin/" + name))).To(Equal("/bosh/bin/bosh-node"))
		}
	})

	It("fails without changes if the image lacks a file of a stemcell", func() {
		err := Start(system.System{Root: string(root)}, "/my/init", nil)
		Expect(err).To(MatchError("the stemcell has no init program /my/init; set cloud_properties.init"))
		Expect(err).To(HaveField("Code", "init-not-found"))
		root.remove("var/vcap/bosh/agent.json")
		err = Start(system.System{Root: string(root)}, "", nil)
		Expect(err).To(MatchError("the image is not a BOSH stemcell: /var/vcap/bosh/agent.json not found"))
		Expect(err).To(HaveField("Code", "image-not-stemcell"))
		Expect(os.ReadDir(root.path("bosh/ephemeral-disk"))).To(BeEmpty())
	})

	Describe("of a VM that booted before", func() {
		BeforeEach(func() {
			root.write("bosh/pod/booted", "true")
		})

		It("fails on an empty ephemeral disk, without changes", func() {
			err := Start(system.System{Root: string(root)}, "", nil)
			Expect(err).To(MatchError("the VM booted before, but its ephemeral disk is empty: its node was rebuilt; " +
				"recreate the VM, which keeps the data of its persistent disks"))
			Expect(api.ResultOf(err, "").Code).To(Equal("ephemeral-disk-lost"))
			Expect(os.ReadDir(root.path("bosh/ephemeral-disk"))).To(BeEmpty())
		})

		It("succeeds with its files", func() {
			Expect(os.Rename(root.path("bosh/pod"), root.path("bosh/later"))).To(Succeed())
			root.expectBoot()
			Expect(os.Rename(root.path("bosh/later"), root.path("bosh/pod"))).To(Succeed())
			root.expectBoot()
		})

		DescribeTable("fails if it cannot find out", func(call, path string) {
			sys := system.System{Root: string(root), Before: func(c, p string) error {
				if c == call && p == path {
					return unix.EIO
				}
				return nil
			}}
			Expect(Start(sys, "", nil)).To(MatchError(unix.EIO))
			Expect(os.ReadDir(root.path("bosh/ephemeral-disk"))).To(BeEmpty())
		},
			Entry("from its record", "read", "/bosh/pod/booted"),
			Entry("from its ephemeral disk", "stat", "/bosh/ephemeral-disk/vcap"),
		)
	})

	DescribeTable("does not consider a VM booted", func(record string) {
		root.write("bosh/pod/booted", record)
		root.expectBoot()
	},
		Entry("without a value", ""),
		Entry("with another value", "false"),
	)
})
