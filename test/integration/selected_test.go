package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/counted"
)

var _ = Describe("Lists and watches", func() {
	It("are of objects that a label or a field selects, over the life of a machine and its disk", func(ctx context.Context) {
		var requests counted.Requests
		w := newWorld(ctx)
		proxy.Reset(requests.Fault())
		properties, env := oneAway(), inGroup(group)
		properties["services"] = []any{fixed(nil)}
		w.must(ctx, "create_vm", "one", stemcellCID, properties, manual("10.9.8.4"), []string{}, env)
		disk := w.usedDisk(ctx, "agent-one", map[string]any{})
		w.must(ctx, "attach_disk", "agent-one", disk)
		w.must(ctx, "get_disks", "agent-one")
		w.must(ctx, "set_vm_metadata", "agent-one", map[string]any{"job": "web"})
		w.must(ctx, "detach_disk", "agent-one", disk)
		w.must(ctx, "create_vm", "two", stemcellCID, properties, onDynamic(), []string{disk}, env)
		w.must(ctx, "snapshot_disk", disk, map[string]any{})
		w.must(ctx, "delete_vm", "agent-one")
		w.must(ctx, "delete_vm", "agent-two")
		w.must(ctx, "delete_disk", disk)
		Expect(requests.Sent()).To(ContainElements("list pods", "watch pods"))
		Expect(requests.Unfiltered()).To(BeEmpty())
	})
})
