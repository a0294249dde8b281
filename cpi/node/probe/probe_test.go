//go:build linux

package probe_test

import (
	"context"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/probe"
	"bosh-kubernetes-cpi/cpi/node/system"
	. "bosh-kubernetes-cpi/test/harness/processtest"
)

func TestProbe(t *testing.T) {
	RegisterFailHandler(Fail)
	slog.SetDefault(slog.New(slog.NewTextHandler(GinkgoWriter, nil)))
	RunSpecs(t, "probe")
}

// programs are the programs of the stemcell that the probe runs.
var programs = []string{"getent", "ip", "iptables", "prlimit", "unshare"}

var _ = Describe("The probe of a node", func() {
	var root Root
	var sys system.System
	var listener net.Listener
	var service string
	BeforeEach(func(ctx SpecContext) {
		root = New()
		sys = root.System()
		// Without permission to mount.
		sys.Before = func(call, _ string) error {
			if call == "mount" || call == "mknod" {
				return unix.EPERM
			}
			return nil
		}
		root.Mkdir("dev")
		root.Mkdir("tmp")
		root.Write("proc/sys/kernel/osrelease", "6.8.0\n")
		root.Write("proc/self/cgroup", "4:memory:/kubepods/a\n0::/kubepods/b\n")
		root.Write("proc/cgroups", "#subsys_name\thierarchy\tnum_cgroups\tenabled\nmemory\t4\t1\t1\nrdma\t0\t1\t0\n")
		root.Write("sys/module/apparmor/parameters/enabled", "Y\n")
		root.Write("proc/fs/xfs/xqmstat", "")
		root.Write("proc/sys/net/ipv4/ip_forward", "0\n")
		root.Mkdir("sys/fs/cgroup")
		for _, program := range programs {
			root.Write("bin/"+program, "#!/bin/sh\necho "+program+" \"$@\" >>"+root.Path("calls"))
		}
		GinkgoT().Setenv("PATH", root.Path("bin"))
		var config net.ListenConfig
		var err error
		listener, err = config.Listen(ctx, "tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { _ = listener.Close() })
		free, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		service = free.Addr().String()
		Expect(free.Close()).To(Succeed())
	})
	run := func(ctx context.Context) map[string]string {
		GinkgoHelper()
		Expect(probe.Run(ctx, sys, api.NodeProbe{Service: service}, listener.Addr().String())).To(Succeed())
		content, err := os.ReadFile(root.Path("dev/termination-log"))
		Expect(err).NotTo(HaveOccurred())
		facts := map[string]string{}
		for line := range strings.Lines(string(content)) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			facts[name] = value
		}
		return facts
	}

	It("reports all facts", func(ctx SpecContext) {
		root.Write("dev/loop-control", "")
		Expect(run(ctx)).To(Equal(map[string]string{
			"kernel": "6.8.0", "cgroup": "v1", "cgroup-controllers": "yes", "loop": "no", "overlay": "no", "ext4": "yes", "xfs": "yes",
			"dummy": "yes", "bridge": "yes", "user-namespaces": "yes", "apparmor": "yes", "xfs-quotas": "yes", "ip-forwarding": "yes",
			"nat": "yes", "open-files": "yes", "dns": "yes", "api": "yes", "hairpin": "yes",
		}))
		calls, err := os.ReadFile(root.Path("calls"))
		Expect(err).NotTo(HaveOccurred())
		Expect(strings.Split(strings.TrimSpace(string(calls)), "\n")).To(Equal([]string{
			"ip link add bosh-probe type dummy", "ip link delete bosh-probe",
			"ip link add bosh-probe type bridge", "ip link delete bosh-probe",
			"unshare --user --map-root-user true", "iptables --wait --table nat --list-rules",
			"prlimit --nofile=524288 true", "getent ahosts kubernetes.default.svc",
		}))
		Expect(os.ReadFile(root.Path("proc/sys/net/ipv4/ip_forward"))).To(BeEquivalentTo("1\n"))
	})

	It("reports what the node does not provide", func(ctx SpecContext) {
		for _, program := range programs[1:] {
			root.Write("bin/"+program, "#!/bin/sh\nexit 1\n")
		}
		root.Remove("bin/getent")
		root.Remove("proc/fs")
		root.Remove("proc/sys/net")
		root.Write("sys/module/apparmor/parameters/enabled", "N\n")
		root.Write("proc/cgroups", "memory\t0\t1\t1\n")
		Expect(listener.Close()).To(Succeed())
		sys.Before = func(call, path string) error {
			switch {
			case call == "mount" && path == "/tmp/bosh-probe":
				return unix.ENODEV
			case call == "mount" || call == "mknod":
				return unix.EPERM
			}
			return nil
		}
		var config net.ListenConfig
		used, err := config.Listen(ctx, "tcp", service) // another program uses the port
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(used.Close)
		facts := run(ctx)
		Expect(facts).To(HaveLen(18))
		delete(facts, "kernel")
		delete(facts, "cgroup")
		Expect(facts).To(HaveEach("no"))
	})

	It("has readable arguments", func() {
		request := api.NodeProbe{Service: "probe-1:6868"}
		Expect(request.Command()).To(Equal([]string{"node", "probe", "--service", "probe-1:6868"}))
		Expect(api.ParseNodeProbe(request.Command()[2:])).To(Equal(request))
		for _, arguments := range [][]string{{}, {"--service", "probe-1"}, {"--other"}} {
			_, err := api.ParseNodeProbe(arguments)
			Expect(err).To(HaveOccurred())
		}
	})

	It("reports what the kernel kills without memory", func(ctx SpecContext) {
		root.Write("sys/fs/cgroup/memory.oom.group", "0\n")
		Expect(run(ctx)).To(HaveKeyWithValue("oom-group", "0"))
		root.Write("sys/fs/cgroup/kubepods/b/memory.oom.group", "1\n")
		Expect(run(ctx)).To(HaveKeyWithValue("oom-group", "1"))
	})

	It("mounts filesystems to find out whether that is possible, and unmounts them", func(ctx SpecContext) {
		if os.Geteuid() != 0 {
			Skip("needs root: mounts filesystems")
		}
		sys.Before = nil
		facts := run(ctx)
		Expect(facts).To(HaveKeyWithValue("overlay", "yes"))
		Expect(facts).To(HaveKeyWithValue("ext4", "yes"))
		Expect(facts).To(HaveKeyWithValue("loop", "yes"))
		Expect(os.ReadDir(root.Path("tmp/bosh-probe"))).To(BeEmpty())
	})

	It("does not try to connect to itself any more if it is interrupted", func(ctx SpecContext) {
		service = "unknown.invalid:" + strings.TrimPrefix(service, "127.0.0.1:")
		interrupted, interrupt := context.WithCancel(ctx)
		interrupt()
		Expect(run(interrupted)).To(HaveKeyWithValue("hairpin", "no"))
	})

	DescribeTable("fails if it cannot report", func(ctx SpecContext, call, path string) {
		before := sys.Before
		sys.Before = func(called, calledPath string) error {
			if called == call && calledPath == path {
				return unix.EIO
			}
			return before(called, calledPath)
		}
		Expect(probe.Run(ctx, sys, api.NodeProbe{Service: service}, "")).To(MatchError(unix.EIO))
	},
		Entry("without a termination message", "open", "/dev/termination-log"),
		Entry("with an error of the termination message", "write", "/dev/termination-log"),
		Entry("without a directory", "mkdir", "/tmp/bosh-probe"),
		Entry("without the version of the kernel", "read", "/proc/sys/kernel/osrelease"),
		Entry("without the version of the cgroups", "statfs", "/sys/fs/cgroup"),
		Entry("without its cgroup", "read", "/proc/self/cgroup"),
		Entry("with an error of its cgroup", "read", "/sys/fs/cgroup/kubepods/b/memory.oom.group"),
	)
})
