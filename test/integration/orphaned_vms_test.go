package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("A VM whose create_vm was killed with its director", func() {
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

			It("makes room for the one that gets its address", func(ctx context.Context) {
				env.mustCall(ctx, "create_vm", createVMArguments("next", "10.9.8.7")...)
				Expect(env.mustCall(ctx, "has_vm", "agent-orphan").Result).To(MatchJSON("false"))
				Expect(env.listObjects(ctx)).NotTo(ContainElements("Pod/agent-orphan", "Secret/agent-orphan"))
			})

			It("stays when the next one has another address", func(ctx context.Context) {
				env.mustCall(ctx, "create_vm", createVMArguments("next", "10.9.8.70")...)
				Expect(env.mustCall(ctx, "has_vm", "agent-orphan").Result).To(MatchJSON("true"))
			})

			It("stays once the director has named it", func(ctx context.Context) {
				env.mustCall(ctx, "set_vm_metadata", "agent-orphan", map[string]any{"job": "web"})
				env.mustCall(ctx, "create_vm", createVMArguments("next", "10.9.8.7")...)
				Expect(env.mustCall(ctx, "has_vm", "agent-orphan").Result).To(MatchJSON("true"))
			})
		})
	}
})
