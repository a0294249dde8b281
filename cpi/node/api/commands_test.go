package api_test

import (
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/cpi/node/api"
)

// A parser parses the arguments after the two words of a command.
type parser func(arguments []string) (any, error)

func parserOf[T any](parse func([]string) (T, error)) parser {
	return func(arguments []string) (any, error) { return parse(arguments) }
}

func disk(name string) parser {
	return parserOf(func(arguments []string) (api.Disk, error) { return api.ParseDisk(name, arguments) })
}

var _ = Describe("A command", func() {
	blank := api.Disk{CID: "disk-1", SizeMiB: 1024, Filesystem: "ext4", VM: "bosh/vm-1"}
	old := api.Disk{CID: "disk-1", SizeMiB: 1 << 40, Filesystem: "xfs", Formatted: true, Preallocate: true, VM: "bosh/vm-1"}
	named := api.Disk{CID: "disk-1", VM: "bosh/vm-1"}
	stop := api.VMStop{ServeSeconds: 5, DrainSeconds: 600}
	reboot := api.VMReboot{VM: "bosh/vm-1", Container: "containerd://0123"}
	probe := api.NodeProbe{Service: "probe-1.bosh:443"}
	vmStart, vmStop, vmReboot := parserOf(api.ParseVMStart), parserOf(api.ParseVMStop), parserOf(api.ParseVMReboot)
	nodeProbe := parserOf(api.ParseNodeProbe)

	DescribeTable("is parsed as it was written", func(words string, command []string, parse parser, expected any) {
		Expect(strings.Join(command[:2], " ")).To(Equal(words))
		Expect(parse(command[2:])).To(Equal(expected))
	},
		Entry(nil, "disk attach", blank.Command(api.Attach), disk(api.Attach), blank),
		Entry(nil, "disk attach", old.Command(api.Attach), disk(api.Attach), old),
		Entry(nil, "disk prepare", old.Command(api.Prepare), disk(api.Prepare), old),
		Entry(nil, "disk idle", old.Command(api.Idle), disk(api.Idle), named),
		Entry(nil, "disk wait", old.Command(api.Wait), disk(api.Wait), named),
		Entry(nil, "disk check", old.Command(api.Check), disk(api.Check), named),
		Entry(nil, "vm start", api.VMStart("/sbin/init"), vmStart, "/sbin/init"),
		Entry(nil, "vm start", api.VMStart(""), vmStart, ""),
		Entry(nil, "vm stop", stop.Command(), vmStop, stop),
		Entry(nil, "vm reboot", reboot.Command(), vmReboot, reboot),
		Entry(nil, "node probe", probe.Command(), nodeProbe, probe),
	)

	It("to flush has no arguments", func() { Expect(api.Flush()).To(Equal([]string{"node", "flush"})) })

	attach := blank.Command(api.Attach)[2:] // of a repeated flag, the last value counts
	DescribeTable("with damaged arguments is rejected", func(message string, parse parser, arguments []string, damage ...string) {
		_, err := parse(slices.Concat(arguments, damage))
		Expect(err).To(MatchError(ContainSubstring(message)))
	},
		Entry(nil, "--cid", disk(api.Attach), nil),
		Entry(nil, "--vm", disk(api.Check), nil, "--cid", "disk-1"),
		Entry(nil, "--size-mib", disk(api.Attach), named.Command(api.Wait)[2:], "--filesystem", "xfs"),
		Entry(nil, "--size-mib", disk(api.Prepare), attach, "--size-mib", "-1"),
		Entry(nil, "-size-mib", disk(api.Attach), attach, "--size-mib", "1G"),
		Entry(nil, "-size-mib", disk(api.Attach), attach, "--size-mib", "9223372036854775808"),
		Entry(nil, "-size-mib", disk(api.Check), named.Command(api.Check)[2:], "--size-mib", "1"),
		Entry(nil, "--filesystem", disk(api.Attach), attach, "--filesystem", "btrfs"),
		Entry(nil, "-formatted", disk(api.Attach), attach, "--formatted=maybe"),
		Entry(nil, `"all"`, disk(api.Attach), attach, "all"),
		Entry(nil, "-init", vmStart, nil, "--init"),
		Entry(nil, "--serve-seconds", vmStop, stop.Command()[2:], "--serve-seconds", "-1"),
		Entry(nil, "--drain-seconds", vmStop, stop.Command()[2:], "--drain-seconds", "-1"),
		Entry(nil, "--vm", vmReboot, nil, "--container", "0123"),
		Entry(nil, "--container", vmReboot, nil, "--vm", "bosh/vm-1"),
		Entry(nil, "--service", nodeProbe, nil, "--service", "probe-1"),
		Entry(nil, "-port", nodeProbe, nil, "--port", "443"),
	)

	DescribeTable("rejects names that are other paths, or none", func(name string) {
		for _, damage := range [][]string{{"--cid", name}, {"--vm", name + "/vm-1"}, {"--vm", "bosh/" + name}} {
			_, err := disk(api.Attach)(slices.Concat(attach, damage))
			Expect(err).To(MatchError(HavePrefix(damage[0]+" ")), damage[1])
		}
	},
		Entry(nil, ""), Entry(nil, "."), Entry(nil, ".."), Entry(nil, "../disk-2"), Entry(nil, "disk-1/.."), Entry(nil, "/disk-1"),
		Entry(nil, ".disk-1.lock"), Entry(nil, "disk-1\x00"), Entry(nil, "disk 1"), Entry(nil, "disk-1\n"),
	)
})
