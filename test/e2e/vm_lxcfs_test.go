//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/harness/embedded"
)

// visibleResources are the resources that /proc shows in a VM.
type visibleResources struct{ MemoryMiB, Processors int }

func (vm *testVM) readResources(ctx context.Context) (resources visibleResources, err error) {
	out, err := vm.tryRun(ctx, "free --mebi | awk '/Mem:/ { print $2 }'; grep --count ^processor /proc/cpuinfo")
	if err == nil {
		_, err = fmt.Sscan(out, &resources.MemoryMiB, &resources.Processors)
	}
	return resources, err
}

// memoryVitals returns the memory usage that the VM's agent reports to the director: the used memory, and its share of the VM's memory
// in whole percent.
func (vm *testVM) memoryVitals(ctx context.Context) (usedMiB, percent float64) {
	GinkgoHelper()
	var state struct {
		Vitals struct {
			Mem struct{ KB, Percent json.Number }
		}
	}
	Expect(json.Unmarshal([]byte(vm.callAgent(ctx, "get_state", "full")), &state)).To(Succeed())
	used, err := state.Vitals.Mem.KB.Float64()
	Expect(err).NotTo(HaveOccurred())
	percent, err = state.Vitals.Mem.Percent.Float64()
	Expect(err).NotTo(HaveOccurred())
	return used / 1024, percent
}

// mountProcInContainer mounts procfs as an unprivileged container does, in new user and PID namespaces.
const mountProcInContainer = "mkdir -p /tmp/proc && unshare --user --map-root-user --pid --fork --mount mount -t proc proc /tmp/proc"

var _ = Describe("The resources that a VM sees", Label("vms", "garden", "extended", labelSharedKernel), Serial, func() {
	DescribeTable("are its own if the node has lxcfs and the node's otherwise, and a change does not restart the VM",
		func(ctx context.Context, stemcell string) {
			node := embedded.NewCluster(os.Getenv("CLUSTER_DIR"), 1).Nodes[0]
			env := newTestEnvWithConfig(ctx, map[string]any{"pods": map[string]any{"lxcfs_path": node.LXCFSRoot()}})
			vm := env.createVMFromStemcell(ctx, os.Getenv(stemcell), map[string]any{"cpu": "500m", "memory": 384})
			nodeResources, err := vm.readResources(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(vm.logs(ctx)).To(ContainSubstring("lxcfs is not mounted at kubernetes.pods.lxcfs_path on the node"))
			Expect(nodeResources.MemoryMiB).To(BeNumerically(">", 384))
			previous := vm.identity(ctx)

			startLXCFS := func() {
				GinkgoHelper()
				Expect(node.LXCFS().Start()).To(Succeed())
				Eventually(vm.readResources).WithContext(ctx).Should(Equal(visibleResources{384, 1}), func() string { return vm.logs(ctx) })
			}
			stopLXCFS := func(ctx context.Context) {
				GinkgoHelper()
				Expect(node.LXCFS().Kill()).To(Succeed())
				// Like the unit of Debian's package. mountpoint(1) does not recognize the mount of an exited FUSE process.
				_, err := node.Exec(ctx, "sh", "-c", `! findmnt --mountpoint "$0" || umount --lazy "$0"`, node.LXCFSRoot())
				Expect(err).NotTo(HaveOccurred())
			}
			DeferCleanup(stopLXCFS)
			startLXCFS()
			used, percent := vm.memoryVitals(ctx)
			Expect(used*100/384).To(BeNumerically("~", percent, 1), "the share of the VM's memory, not of the node's")
			vm.run(ctx, mountProcInContainer)
			Expect(strconv.ParseFloat(vm.run(ctx, "cut --delimiter ' ' --fields 1 /proc/uptime"), 64)).To(BeNumerically("<", 600))

			stopLXCFS(ctx)
			Eventually(vm.readResources).WithContext(ctx).Should(Equal(nodeResources))
			vm.waitForAgent(ctx)
			startLXCFS()
			Expect(vm.identity(ctx)).To(Equal(previous))

			vm.killInit(ctx)
			vm.waitForAgent(ctx)
			Eventually(vm.readResources).WithContext(ctx).Should(Equal(visibleResources{384, 1}))
		}, stemcellEntries())
})
