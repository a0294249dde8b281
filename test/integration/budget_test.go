package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/stemcells"
)

// The most requests that a call may send to the API server when nothing goes wrong; a watch counts as
// one.
var _ = Describe("The number of requests", func() {
	var w world
	BeforeEach(func(ctx context.Context) { w = newWorld(ctx) })

	// Each call that changes something leaves an Event, with a request of its own.
	const event = 1

	counts := func(ctx context.Context, most int, method string, arguments ...any) {
		GinkgoHelper()
		proxy.Reset(nil)
		w.must(ctx, method, arguments...)
		Expect(len(proxy.Requests())).To(BeNumerically("<=", most), "%s sent %v", method, proxy.Requests())
	}

	It("is none for calls that need no cluster", func(ctx context.Context) {
		counts(ctx, 0, "info")
		counts(ctx, 0, "calculate_vm_cloud_properties", map[string]any{"cpu": 1, "ram": 1024, "ephemeral_disk_size": 1024})
		counts(ctx, 0, "create_stemcell", "image", map[string]any{"image": stemcellCID})
		counts(ctx, 0, "delete_stemcell", stemcellCID)
	})

	It("stays within the budget over the life of a machine and its disk", func(ctx context.Context) {
		// It looks whether a VM that no director knows has the address.
		counts(ctx, 3+1+event, "create_vm", "manual", stemcellCID, map[string]any{}, manual("10.9.8.3"), []string{}, map[string]any{})
		// The address that the cluster chose is known only once the Pod runs; to be kept, it is written down
		// with a request of its own.
		counts(ctx, 3+1+event, "create_vm", "budget", stemcellCID, map[string]any{}, onDynamic(), []string{}, map[string]any{})
		vm := "agent-budget"
		counts(ctx, 1, "has_vm", vm)
		counts(ctx, 1, "set_vm_metadata", vm, map[string]any{"job": "web"})
		counts(ctx, 1+event, "create_disk", 64, map[string]any{}, vm)
		disk := w.createDisk(ctx)
		counts(ctx, 1, "has_disk", disk)
		// The attachment Pod starts once the disk's PVC records it as the owner: that takes two requests, so that no Pod that is
		// created late opens the disk. After the first attachment the PVC records the filesystem.
		counts(ctx, 4+2+1+event, "attach_disk", vm, disk)
		counts(ctx, 1+1, "get_disks", vm)
		counts(ctx, 1, "set_disk_metadata", disk, map[string]any{"job": "web"})
		counts(ctx, 4+1+event, "detach_disk", vm, disk)
		counts(ctx, 4+2+event, "attach_disk", vm, disk)
		// The records of the VM's disks are listed, and each is released.
		counts(ctx, 3+1+2+event, "delete_vm", vm)
	})

	It("stays within the budget when a disk grows", func(ctx context.Context) {
		disk := w.usedDisk(ctx, w.createVM(ctx, "one"), map[string]any{"storage_class": "growing"})
		// The size is noted once the volume has it, with a request of its own.
		counts(ctx, 5+1+event, "resize_disk", disk, 128)
		counts(ctx, 2+event, "resize_disk", disk, 128)
	})

	It("stays within the budget for a snapshot, and for a VM that is to get a disk", func(ctx context.Context) {
		disk := w.usedDisk(ctx, w.createVM(ctx, "one"), map[string]any{})
		counts(ctx, 6+event, "snapshot_disk", disk, map[string]any{})
		counts(ctx, 3+1+2+3+event, "create_vm", "near", stemcellCID, map[string]any{}, onDynamic(), []string{disk}, map[string]any{})
	})

	It("is one for a stemcell that nodes are to pull, and two when that is known or ends", func(ctx context.Context) {
		w.Director = w.prefetching(ctx, enabled, nil)
		counts(ctx, 1, "create_stemcell", "image", light)
		counts(ctx, 2, "create_stemcell", "image", light)
		counts(ctx, 2, "delete_stemcell", stemcellCID)
		counts(ctx, 1, "delete_stemcell", stemcellCID)
	})

	It("is one more for a heavy stemcell that nodes are to pull, which the cluster is asked about before its image is pushed", func(ctx context.Context) {
		registry := stemcells.NewRegistry(false)
		DeferCleanup(registry.Close)
		w.Director = w.prefetching(ctx, enabled, pushedTo(registry))
		image, properties := heavyImage()
		const pullSecret = 2 // looked for, and made
		counts(ctx, 1+pullSecret+1, "create_stemcell", image, properties)
	})

	It("grows by one for each Service of a machine, and by two for one that is shared", func(ctx context.Context) {
		own, shared := behind(map[string]any{"ports": []any{80}}), behind(fixed(nil))
		const keep = 1 // the address of a dynamic network
		counts(ctx, 3+keep+1+event, "create_vm", "own", stemcellCID, own, onDynamic(), []string{}, map[string]any{})
		counts(ctx, 3+keep+2+event, "create_vm", "first", stemcellCID, shared, onDynamic(), []string{}, map[string]any{})
		counts(ctx, 3+keep+2+event, "create_vm", "second", stemcellCID, shared, onDynamic(), []string{}, map[string]any{})
		const records = 1 // whether it has disks
		counts(ctx, 3+records+event, "delete_vm", "agent-own")
		counts(ctx, 3+records+event, "delete_vm", "agent-first")
	})
})
