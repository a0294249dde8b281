package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("A VM whose create_vm was killed with its director", func() {
	for name, kind := range kinds {
		Describe("on a manual network"+name, func() {
			var w world
			create := func(agent, address string) []any {
				return []any{agent, stemcellCID, w.vm, manual(address), []string{}, map[string]any{}}
			}
			BeforeEach(func(ctx context.Context) {
				w = newWorld(ctx).of(kind)
				w.must(ctx, "create_vm", create("orphan", "10.9.8.7")...)
			})

			It("makes room for the one that gets its address", func(ctx context.Context) {
				w.must(ctx, "create_vm", create("next", "10.9.8.7")...)
				Expect(w.must(ctx, "has_vm", "agent-orphan").Result).To(MatchJSON("false"))
				Expect(w.objects(ctx)).NotTo(ContainElements("Pod/agent-orphan", "Secret/agent-orphan"))
			})

			It("stays when the next one has another address", func(ctx context.Context) {
				w.must(ctx, "create_vm", create("next", "10.9.8.70")...)
				Expect(w.must(ctx, "has_vm", "agent-orphan").Result).To(MatchJSON("true"))
			})

			It("stays once the director has named it", func(ctx context.Context) {
				w.must(ctx, "set_vm_metadata", "agent-orphan", map[string]any{"job": "web"})
				w.must(ctx, "create_vm", create("next", "10.9.8.7")...)
				Expect(w.must(ctx, "has_vm", "agent-orphan").Result).To(MatchJSON("true"))
			})
		})
	}
})
