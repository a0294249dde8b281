package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/test/harness/requestlog"
)

var _ = Describe("Lists and watches", func() {
	It("select objects by a label or a field, over the life of a VM and its disk", func(ctx context.Context) {
		var recorder requestlog.Recorder
		env := newTestEnv(ctx)
		proxy.Reset(recorder.Middleware())
		properties, agentEnv := maxOneUnavailable(), groupEnv(groupName)
		properties["services"] = []any{namedService(nil)}
		env.mustCall(ctx, "create_vm", "one", stemcellCID, properties, manualNetwork("10.9.8.4"), []string{}, agentEnv)
		disk := env.createUsedDisk(ctx, "agent-one", map[string]any{})
		env.mustCall(ctx, "attach_disk", "agent-one", disk)
		env.mustCall(ctx, "get_disks", "agent-one")
		env.mustCall(ctx, "set_vm_metadata", "agent-one", map[string]any{"job": "web"})
		env.mustCall(ctx, "detach_disk", "agent-one", disk)
		env.mustCall(ctx, "create_vm", "two", stemcellCID, properties, dynamicNetwork(), []string{disk}, agentEnv)
		env.mustCall(ctx, "snapshot_disk", disk, map[string]any{})
		env.mustCall(ctx, "delete_vm", "agent-one")
		env.mustCall(ctx, "delete_vm", "agent-two")
		env.mustCall(ctx, "delete_disk", disk)
		Expect(recorder.Requests()).To(ContainElements("list pods", "watch pods"))
		Expect(recorder.Unfiltered()).To(BeEmpty())
	})
})
