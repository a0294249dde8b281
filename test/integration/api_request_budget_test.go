package integration

import (
	"context"
	"net/http"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/harness/apiproxy"
)

// A conflictCounter counts responses about a conflict.
type conflictCounter struct {
	http.ResponseWriter
	conflicts *atomic.Int64
}

func (c conflictCounter) WriteHeader(status int) {
	if status == http.StatusConflict {
		c.conflicts.Add(1)
	}
	c.ResponseWriter.WriteHeader(status)
}

// The maximum number of requests that a call without errors sends to the API server. A watch counts as one request.
var _ = Describe("The number of requests", func() {
	var env testEnv
	BeforeEach(func(ctx context.Context) { env = newTestEnv(ctx) })

	// Each call that changes something records an Event.
	const eventRequests = 1

	// After a conflict with Kubernetes, which changes the status of PVCs at any time, a call reads at most two objects again, and repeats the
	// patch.
	const conflictRequests = 3

	expectAtMost := func(ctx context.Context, limit int, method string, arguments ...any) {
		GinkgoHelper()
		var conflicts, openWatches, explanations atomic.Int64
		proxy.Reset(func(_ int, w http.ResponseWriter, r *http.Request, next http.Handler) {
			verb, _, _ := apiproxy.ParseRequest(r)
			// A wait that takes longer, as on a busy machine, also watches what may prevent its end.
			if openWatches.Load() > 0 && (verb == "list" || verb == "watch") {
				explanations.Add(1)
			}
			switch verb {
			case "patch":
				w = conflictCounter{w, &conflicts}
			case "watch":
				openWatches.Add(1)
				defer openWatches.Add(-1)
			}
			next.ServeHTTP(w, r)
		})
		env.mustCall(ctx, method, arguments...)
		limit += int(conflicts.Load())*conflictRequests + int(explanations.Load())
		Expect(len(proxy.Requests())).To(BeNumerically("<=", limit), "%s sent %v", method, proxy.Requests())
	}

	It("is zero for calls that need no cluster", func(ctx context.Context) {
		expectAtMost(ctx, 0, "info")
		expectAtMost(ctx, 0, "calculate_vm_cloud_properties", map[string]any{"cpu": 1, "ram": 1024, "ephemeral_disk_size": 1024})
		expectAtMost(ctx, 0, "create_stemcell", "image", map[string]any{"image": stemcellCID})
		expectAtMost(ctx, 0, "delete_stemcell", stemcellCID)
	})

	It("stays within the budget over the life of a VM and its disk", func(ctx context.Context) {
		// One request searches for an orphaned VM with the same address, and one records that the VM has booted.
		expectAtMost(ctx, 3+1+1+eventRequests, "create_vm", "manual", stemcellCID, map[string]any{}, manualNetwork("10.9.8.3"), []string{}, map[string]any{})
		// The assigned address is known only after the Pod starts. The same request records it as the requested address.
		expectAtMost(ctx, 3+1+eventRequests, "create_vm", "budget", stemcellCID, map[string]any{}, dynamicNetwork(), []string{}, map[string]any{})
		vm := "agent-budget"
		expectAtMost(ctx, 1, "has_vm", vm)
		expectAtMost(ctx, 1, "set_vm_metadata", vm, map[string]any{"job": "web"})
		expectAtMost(ctx, 1+eventRequests, "create_disk", 64, map[string]any{}, vm)
		disk := env.createDisk(ctx)
		expectAtMost(ctx, 1, "has_disk", disk)
		// The attachment Pod starts only after the PVC records it as the owner, so that no Pod of a late request opens the disk. That
		// requires two requests. After the first attachment, the PVC and the attachment Pod record the filesystem.
		expectAtMost(ctx, 4+2+2+eventRequests, "attach_disk", vm, disk)
		expectAtMost(ctx, 1+1, "get_disks", vm)
		expectAtMost(ctx, 1, "set_disk_metadata", disk, map[string]any{"job": "web"})
		// One request checks that the PVC is not being deleted, because its data would then be lost.
		expectAtMost(ctx, 4+1+1+eventRequests, "detach_disk", vm, disk)
		expectAtMost(ctx, 4+2+eventRequests, "attach_disk", vm, disk)
		// The call lists the disks of the VM to check the same, lists them again, and releases each one.
		expectAtMost(ctx, 3+1+1+2+eventRequests, "delete_vm", vm)
	})

	It("stays within the budget if a disk is resized", func(ctx context.Context) {
		disk := env.createUsedDisk(ctx, env.createVM(ctx, "one"), map[string]any{"storage_class": "growing"})
		// One request records the size after the expansion.
		expectAtMost(ctx, 5+1+eventRequests, "resize_disk", disk, 128)
		expectAtMost(ctx, 2+eventRequests, "resize_disk", disk, 128)
	})

	It("stays within the budget for a snapshot, and for a VM that is created for a disk", func(ctx context.Context) {
		disk := env.createUsedDisk(ctx, env.createVM(ctx, "one"), map[string]any{})
		expectAtMost(ctx, 6+eventRequests, "snapshot_disk", disk, map[string]any{})
		expectAtMost(ctx, 3+1+2+3+eventRequests, "create_vm", "near", stemcellCID, map[string]any{}, dynamicNetwork(), []string{disk}, map[string]any{})
	})

	It("is larger by one for each Service of a VM, and by two for a shared Service", func(ctx context.Context) {
		unshared, shared := servicesProperties(map[string]any{"ports": []any{80}}), servicesProperties(namedService(nil))
		const addressRequests = 1 // to record the address on the dynamic network
		expectAtMost(ctx, 3+addressRequests+1+eventRequests, "create_vm", "unshared", stemcellCID, unshared, dynamicNetwork(), []string{}, map[string]any{})
		expectAtMost(ctx, 3+addressRequests+2+eventRequests, "create_vm", "first", stemcellCID, shared, dynamicNetwork(), []string{}, map[string]any{})
		expectAtMost(ctx, 3+addressRequests+2+eventRequests, "create_vm", "second", stemcellCID, shared, dynamicNetwork(), []string{}, map[string]any{})
		const pvcListRequests = 1 // to find the disks of the VM
		expectAtMost(ctx, 3+pvcListRequests+eventRequests, "delete_vm", "agent-unshared")
		expectAtMost(ctx, 3+pvcListRequests+eventRequests, "delete_vm", "agent-first")
	})
})
