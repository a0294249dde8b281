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
	var env testEnv
	BeforeEach(func(ctx context.Context) { env = newTestEnv(ctx) })

	// Each call that changes something leaves an Event, with a request of its own.
	const eventRequests = 1

	expectAtMost := func(ctx context.Context, most int, method string, arguments ...any) {
		GinkgoHelper()
		proxy.Reset(nil)
		env.mustCall(ctx, method, arguments...)
		Expect(len(proxy.Requests())).To(BeNumerically("<=", most), "%s sent %v", method, proxy.Requests())
	}

	It("is none for calls that need no cluster", func(ctx context.Context) {
		expectAtMost(ctx, 0, "info")
		expectAtMost(ctx, 0, "calculate_vm_cloud_properties", map[string]any{"cpu": 1, "ram": 1024, "ephemeral_disk_size": 1024})
		expectAtMost(ctx, 0, "create_stemcell", "image", map[string]any{"image": stemcellCID})
		expectAtMost(ctx, 0, "delete_stemcell", stemcellCID)
	})

	It("stays within the budget over the life of a machine and its disk", func(ctx context.Context) {
		// It looks whether a VM that no director knows has the address.
		expectAtMost(ctx, 3+1+eventRequests, "create_vm", "manual", stemcellCID, map[string]any{}, manualNetwork("10.9.8.3"), []string{}, map[string]any{})
		// The address that the cluster chose is known only once the Pod runs; to be kept, it is written down
		// with a request of its own.
		expectAtMost(ctx, 3+1+eventRequests, "create_vm", "budget", stemcellCID, map[string]any{}, dynamicNetwork(), []string{}, map[string]any{})
		vm := "agent-budget"
		expectAtMost(ctx, 1, "has_vm", vm)
		expectAtMost(ctx, 1, "set_vm_metadata", vm, map[string]any{"job": "web"})
		expectAtMost(ctx, 1+eventRequests, "create_disk", 64, map[string]any{}, vm)
		disk := env.createDisk(ctx)
		expectAtMost(ctx, 1, "has_disk", disk)
		// The attachment Pod starts once the disk's PVC records it as the owner: that takes two requests, so that no Pod that is
		// created late opens the disk. After the first attachment the PVC records the filesystem.
		expectAtMost(ctx, 4+2+1+eventRequests, "attach_disk", vm, disk)
		expectAtMost(ctx, 1+1, "get_disks", vm)
		expectAtMost(ctx, 1, "set_disk_metadata", disk, map[string]any{"job": "web"})
		expectAtMost(ctx, 4+1+eventRequests, "detach_disk", vm, disk)
		expectAtMost(ctx, 4+2+eventRequests, "attach_disk", vm, disk)
		// The records of the VM's disks are listed, and each is released.
		expectAtMost(ctx, 3+1+2+eventRequests, "delete_vm", vm)
	})

	It("stays within the budget when a disk grows", func(ctx context.Context) {
		disk := env.createUsedDisk(ctx, env.createVM(ctx, "one"), map[string]any{"storage_class": "growing"})
		// The size is noted once the volume has it, with a request of its own.
		expectAtMost(ctx, 5+1+eventRequests, "resize_disk", disk, 128)
		expectAtMost(ctx, 2+eventRequests, "resize_disk", disk, 128)
	})

	It("stays within the budget for a snapshot, and for a VM that is to get a disk", func(ctx context.Context) {
		disk := env.createUsedDisk(ctx, env.createVM(ctx, "one"), map[string]any{})
		expectAtMost(ctx, 6+eventRequests, "snapshot_disk", disk, map[string]any{})
		expectAtMost(ctx, 3+1+2+3+eventRequests, "create_vm", "near", stemcellCID, map[string]any{}, dynamicNetwork(), []string{disk}, map[string]any{})
	})

	It("is one for a stemcell that nodes are to pull, and two when that is known or ends", func(ctx context.Context) {
		env.Director = env.directorWithPrefetch(ctx, prefetchEnabled, nil)
		expectAtMost(ctx, 1, "create_stemcell", "image", lightStemcell)
		expectAtMost(ctx, 2, "create_stemcell", "image", lightStemcell)
		expectAtMost(ctx, 2, "delete_stemcell", stemcellCID)
		expectAtMost(ctx, 1, "delete_stemcell", stemcellCID)
	})

	It("is one more for a heavy stemcell that nodes are to pull, which the cluster is asked about before its image is pushed", func(ctx context.Context) {
		registry := stemcells.NewRegistry(false)
		DeferCleanup(registry.Close)
		env.Director = env.directorWithPrefetch(ctx, prefetchEnabled, registrySettings(registry))
		image, properties := writeHeavyImage()
		const pullSecretRequests = 2 // looked for, and made
		expectAtMost(ctx, 1+pullSecretRequests+1, "create_stemcell", image, properties)
	})

	It("grows by one for each Service of a machine, and by two for one that is shared", func(ctx context.Context) {
		own, shared := servicesProperties(map[string]any{"ports": []any{80}}), servicesProperties(namedService(nil))
		const addressRequests = 1 // the address of a dynamic network
		expectAtMost(ctx, 3+addressRequests+1+eventRequests, "create_vm", "own", stemcellCID, own, dynamicNetwork(), []string{}, map[string]any{})
		expectAtMost(ctx, 3+addressRequests+2+eventRequests, "create_vm", "first", stemcellCID, shared, dynamicNetwork(), []string{}, map[string]any{})
		expectAtMost(ctx, 3+addressRequests+2+eventRequests, "create_vm", "second", stemcellCID, shared, dynamicNetwork(), []string{}, map[string]any{})
		const pvcListRequests = 1 // whether it has disks
		expectAtMost(ctx, 3+pvcListRequests+eventRequests, "delete_vm", "agent-own")
		expectAtMost(ctx, 3+pvcListRequests+eventRequests, "delete_vm", "agent-first")
	})
})
