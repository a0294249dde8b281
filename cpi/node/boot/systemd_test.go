//go:build linux

package boot

import (
	"os"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("The start of a VM with systemd", func() {
	var root fakeRoot
	BeforeEach(func() {
		root = newSystemdRoot()
	})

	It("mounts an empty /run with only the Pod's mounts, and makes mounts shared", func() {
		root.write("lib/systemd", `#!/bin/bash
			root=$BOOT_TEST_ROOT PATH=$HOST_PATH
			findmnt -no PROPAGATION "$root" >>"$root/calls"
			ls "$root/run" >>"$root/calls"; cat "$root/run/secrets/token/token" >>"$root/calls"
			readlink "$root/run/systemd/system/systemd-udevd.service" >>"$root/calls"
			findmnt -no FSTYPE,OPTIONS "$root/run" >>"$root/calls"
			ls "$root/run/systemd/resolved.conf.d" >>"$root/calls"`)
		c := root.start(volumes + `mount --bind "$root/kubelet/token" "$root/run/secrets/token"`)
		Expect(c.wait()).To(Succeed(), c.output.String)
		calls := root.calls()
		Expect(calls[slices.Index(calls, "fallocate /bosh/ephemeral-disk/reserve.new/space")+1:]).To(HaveExactElements(
			Equal("mount /bosh/new"), Equal("mount /bosh/new/secrets/token"), Equal("mount /run"), Equal("umount /bosh/new"),
			Equal("mount /"), Equal("unshare "),
			Equal("shared"), Equal("secrets"), Equal("systemd"), Equal("of the Pod"), Equal("/dev/null"),
			MatchRegexp("^tmpfs +rw,nosuid,nodev,.*mode=755"),
		))
	})

	It("configures the Pod's name servers until the agent configures others", func() {
		root.remove("etc/resolv.conf")
		root.write("lib/systemd", "#!/bin/bash\nroot=$BOOT_TEST_ROOT PATH=$HOST_PATH\n"+
			`cat "$root/run/systemd/resolved.conf.d/kubernetes.conf" >>"$root/calls"`)
		root.write("systemd/resolve/stub-resolv.conf", "nameserver 10.96.0.10\nnameserver 10.96.0.11\nsearch bosh.svc cluster.local\n")
		Expect(os.Symlink("../systemd/resolve/stub-resolv.conf", root.path("etc/resolv.conf"))).To(Succeed())
		c := root.start(`mount -t tmpfs tmpfs "$root/dev/bosh"`)
		Expect(c.wait()).To(Succeed(), c.output.String)
		Expect(root.calls()).To(ContainElements("[Resolve]", "FallbackDNS=10.96.0.10 10.96.0.11", "Domains=bosh.svc cluster.local"))
	})
})

// newSystemdRoot returns the root of a new container with a stemcell image with systemd.
func newSystemdRoot() fakeRoot {
	GinkgoHelper()
	root := newStemcellRoot()
	root.mkdir("lib")
	Expect(os.Rename(root.path("usr/sbin/runsvdir-start"), root.path("lib/systemd"))).To(Succeed())
	root.mkdir("sbin")
	Expect(os.Symlink("../lib/systemd", root.path("sbin/init"))).To(Succeed())
	root.write("run/of-the-image", "")
	root.mkdir("run/secrets/token")
	root.write("kubelet/token/token", "of the Pod\n")
	return root
}
