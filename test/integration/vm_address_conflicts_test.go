package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("An orphaned VM of an interrupted create_vm", func() {
	for name, strategy := range diskStrategies {
		Describe("on a manual network"+name, func() {
			var env testEnv
			createVMArguments := func(agent, address string) []any {
				return []any{agent, stemcellCID, env.vmProperties, manualNetwork(address), []string{}, map[string]any{}}
			}
			BeforeEach(func(ctx context.Context) {
				env = newTestEnv(ctx).withDiskStrategy(strategy)
				env.mustCall(ctx, "create_vm", createVMArguments("orphan", "10.9.8.7")...)
			})

			It("is deleted by the create_vm of a VM with the same address", func(ctx context.Context) {
				env.mustCall(ctx, "create_vm", createVMArguments("next", "10.9.8.7")...)
				Expect(env.mustCall(ctx, "has_vm", "agent-orphan").Result).To(MatchJSON("false"))
				Expect(env.listObjects(ctx)).NotTo(ContainElements("Pod/agent-orphan", "Secret/agent-orphan"))
			})

			It("is kept by the create_vm of a VM with another address", func(ctx context.Context) {
				env.mustCall(ctx, "create_vm", createVMArguments("next", "10.9.8.70")...)
				Expect(env.mustCall(ctx, "has_vm", "agent-orphan").Result).To(MatchJSON("true"))
			})

			It("is kept after a set_vm_metadata", func(ctx context.Context) {
				env.mustCall(ctx, "set_vm_metadata", "agent-orphan", map[string]any{"job": "web"})
				env.mustCall(ctx, "create_vm", createVMArguments("next", "10.9.8.7")...)
				Expect(env.mustCall(ctx, "has_vm", "agent-orphan").Result).To(MatchJSON("true"))
			})
		})
	}
})
