package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"bosh-kubernetes-cpi/test/harness/director"
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

			Describe("with the metadata of the director, which a restored database does not contain,", func() {
				BeforeEach(func(ctx context.Context) {
					env.mustCall(ctx, "set_vm_metadata", "agent-orphan", map[string]any{"deployment": "cf", "job": "web", "index": "0"})
				})

				It("makes the create_vm of a VM with the same address fail until the operator deletes it", func(ctx context.Context) {
					Expect(env.mustFail(ctx, "create_vm", createVMArguments("next", "10.9.8.7")...)).To(Equal(director.Error{
						Type: "Bosh::Clouds::VMCreationFailed", Message: "cannot create VM agent-next with address 10.9.8.7: " +
							"VM agent-orphan (web/0 of deployment cf) has it; if `bosh vms` does not show that VM, delete it with " +
							"`bosh -d cf delete-vm agent-orphan` [address-in-use]",
					}))
					Expect(env.listObjects(ctx)).To(And(ContainElement("Pod/agent-orphan"), Not(ContainElement("Pod/agent-next"))))
					env.mustCall(ctx, "delete_vm", "agent-orphan")
					env.mustCall(ctx, "create_vm", createVMArguments("next", "10.9.8.7")...)
				})

				It("can be created again", func(ctx context.Context) {
					env.mustCall(ctx, "create_vm", createVMArguments("orphan", "10.9.8.7")...)
				})

				It("does not prevent the create_vm of a VM with the same address while it is being deleted", func(ctx context.Context) {
					allow := env.blockDeletion(ctx, podResource, "agent-orphan")
					Expect(cluster.CoreV1().Pods(env.namespace).Delete(ctx, "agent-orphan", metav1.DeleteOptions{})).To(Succeed())
					env.mustCall(ctx, "create_vm", createVMArguments("next", "10.9.8.7")...)
					allow()
				})

				It("does not prevent the create_vm of a VM with the same address after its Pod was evicted", func(ctx context.Context) {
					env.markEvicted(ctx, "agent-orphan")
					env.mustCall(ctx, "create_vm", createVMArguments("next", "10.9.8.7")...)
				})
			})
		})
	}

	It("of another director makes the create_vm of a VM with the same address fail", func(ctx context.Context) {
		env := newTestEnv(ctx)
		arguments := func(agent string) []any {
			return []any{agent, stemcellCID, env.vmProperties, manualNetwork("10.9.8.7"), []string{}, map[string]any{}}
		}
		env.mustCall(ctx, "create_vm", arguments("foreign")...)
		_, err := cluster.CoreV1().Pods(env.namespace).Patch(ctx, "agent-foreign", types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"bosh.cloudfoundry.org/director-uuid":"another"},"annotations":{"bosh.cloudfoundry.org/director":"lab"}}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(env.mustFail(ctx, "create_vm", arguments("next")...).Message).To(ContainSubstring(
			"VM agent-foreign of another director, lab another, has it; choose another address"))
	})
})
