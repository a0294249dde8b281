//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/harness/embedded"
)

const (
	disksPerMode = 2
	attachCycles = 125 // how many times each disk is attached and detached
	vmsPerDisk   = 50  // how many VMs are deleted with each disk
)

// The disks are used at the same time, because each needs about ten seconds to move to the other node, and a busy node is slow to stop
// attachments.
var _ = Describe("Persistent disks of both volume modes that move between two nodes", Label("disks", "extended", labelSharedKernel), Serial, func() {
	var (
		env       *testEnv
		nodes     []*embedded.Node
		checksums map[string]string // by disk
		unused    []string          // see deviceState
	)

	BeforeEach(func(ctx context.Context) {
		env = newTestEnv(ctx)
		nodes = []*embedded.Node{env.embedded.Nodes[0], env.ensureSecondNode(ctx)}
		checksums = map[string]string{}
		vm := env.createVM(ctx)
		for _, properties := range slices.Repeat([]map[string]any{movableDisks["Filesystem"], movableDisks["Block"]}, disksPerMode) {
			disk := env.createDisk(ctx, largeDisk, properties)
			vm.attach(ctx, disk)
			checksums[disk] = vm.run(ctx, fillLarge)
			vm.run(ctx, "echo "+disk+" >/var/vcap/store/mark")
			vm.detach(ctx, disk)
		}
		env.mustCall(ctx, "delete_vm", vm.cid)
		Eventually(env.volumeLoopDevices).WithContext(ctx).Should(BeEmpty()) // the kubelet unmounts a volume shortly after its Pod is deleted
		unused = deviceState(ctx, env, nodes)
	}, NodeTimeout(longTest))

	AfterEach(func(ctx context.Context) {
		Eventually(deviceState).WithArguments(env, nodes).WithContext(ctx).Should(Equal(unused))
		vm := env.createVM(ctx)
		for disk, checksum := range checksums {
			vm.attach(ctx, disk)
			Expect(vm.run(ctx, checkLarge)).To(Equal(checksum))
			vm.detach(ctx, disk)
		}
	}, NodeTimeout(longTest))

	It(fmt.Sprintf("keep their data over %d attachments each, and leave no devices or mounts", attachCycles), func(ctx context.Context) {
		var vms []*testVM
		var previous []identity
		for _, node := range nodes {
			vm := env.createVMFromSpec(ctx, vmSpec{properties: nodeSelector(node)})
			vms, previous = append(vms, vm), append(previous, vm.identity(ctx))
		}
		forEachDisk(checksums, func(disk string) {
			for i := range attachCycles {
				vm := vms[i%len(vms)]
				env.mustCall(ctx, "attach_disk", vm.cid, disk)
				vm.expectMark(ctx, disk)
				env.mustCall(ctx, "detach_disk", vm.cid, disk)
			}
		})
		for i, vm := range vms {
			Expect(vm.identity(ctx)).To(Equal(previous[i]))
			Expect(vm.run(ctx, "ls -A /dev/bosh")).To(BeEmpty())
			env.mustCall(ctx, "delete_vm", vm.cid)
		}
	}, NodeTimeout(6*longTest))

	It(fmt.Sprintf("keep their data while %d VMs each are deleted with them, and leave no devices or mounts", vmsPerDisk), func(ctx context.Context) {
		forEachDisk(checksums, func(disk string) {
			for i := range vmsPerDisk {
				vm := env.createVMFromSpec(ctx, vmSpec{properties: nodeSelector(nodes[i%len(nodes)]), disks: []string{disk}})
				env.mustCall(ctx, "attach_disk", vm.cid, disk)
				vm.expectMark(ctx, disk)
				env.mustCall(ctx, "delete_vm", vm.cid)
			}
		})
	}, NodeTimeout(6*longTest))
})

// deviceState describes the loop devices of the host, and the mounts of the nodes.
func deviceState(ctx context.Context, env *testEnv, nodes []*embedded.Node) []string {
	GinkgoHelper()
	state := []string{env.listNodeLoops(ctx)}
	for _, node := range nodes {
		state = append(state, mountPoints(ctx, node)...)
	}
	return state
}

// forEachDisk calls use for all disks at the same time.
func forEachDisk(disks map[string]string, use func(disk string)) {
	GinkgoHelper()
	var actions []func()
	for disk := range disks {
		actions = append(actions, func() { use(disk) })
	}
	runConcurrently(actions...)
}

// expectMark mounts the attached disk, expects its mark, and unmounts it.
func (vm *testVM) expectMark(ctx context.Context, disk string) {
	GinkgoHelper()
	const readMark = "mkdir -p /mnt/DISK && mount /dev/bosh/DISK /mnt/DISK && cat /mnt/DISK/mark && umount /mnt/DISK"
	Expect(vm.run(ctx, strings.ReplaceAll(readMark, "DISK", disk))).To(Equal(disk))
}
