//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// Verifies the differences from a VM on another IaaS that docs/explanation/vms.md lists.
var _ = Describe("The resource view of a VM", Label("vms", "extended"), Serial, func() {
	const memory = 768 // MiB

	DescribeTable("shows the node's resources and kernel, but its own cgroup limits and network settings",
		func(ctx context.Context, stemcell string) {
			env := newTestEnv(ctx)
			vm := env.createVMFromStemcell(ctx, os.Getenv(stemcell), map[string]any{"memory": memory, "cpu": "500m"})
			// outputs returns the output of a command in the VM and on its node.
			outputs := func(command string) []string {
				GinkgoHelper()
				node, err := env.node.Shell(ctx, command)
				Expect(err).NotTo(HaveOccurred())
				return []string{vm.run(ctx, command), node}
			}

			By("comparing the resources that the VM shares with the node")
			for _, command := range []string{"awk '/^MemTotal/ { print $2 }' /proc/meminfo", "nproc", "grep -c ^processor /proc/cpuinfo",
				"uname -r", "cat /proc/sys/kernel/random/boot_id", "awk '/^btime/ { print $2 }' /proc/stat"} {
				output := outputs(command)
				Expect(output[0]).To(Equal(output[1]), command)
			}
			previous := outputs("cat /proc/sys/vm/swappiness")[1]
			DeferCleanup(func(ctx context.Context) {
				_, err := env.node.Shell(ctx, "sysctl -q -w vm.swappiness="+previous)
				Expect(err).NotTo(HaveOccurred())
			})
			vm.run(ctx, "sysctl -q -w vm.swappiness=7")
			Expect(outputs("cat /proc/sys/vm/swappiness")).To(HaveEach("7"), "a kernel setting without a namespace")

			By("checking the resources that are separate from the node")
			vm.run(ctx, "sysctl -q -w net.ipv4.tcp_keepalive_time=1234")
			output := outputs("cat /proc/sys/net/ipv4/tcp_keepalive_time")
			Expect(output[0]).To(Equal("1234"))
			Expect(output[1]).NotTo(Equal("1234"))
			if version := vm.run(ctx, "stat --file-system --format %T /sys/fs/cgroup"); version == "cgroup2fs" {
				Expect(vm.run(ctx, "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/cpu.max")).To(Equal(fmt.Sprintf("%d\n50000 100000", memory<<20)))
			} else {
				Expect(vm.run(ctx, "cat /sys/fs/cgroup/memory/memory.limit_in_bytes")).To(Equal(fmt.Sprint(memory << 20)))
				Expect(vm.run(ctx, "echo $(($(cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us) * 1000 / $(cat /sys/fs/cgroup/cpu/cpu.cfs_period_us)))")).To(Equal("500"))
			}
		},
		stemcellEntries())
})
