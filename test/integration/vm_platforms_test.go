package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// node-a has the architecture amd64, and node-b arm64.
var _ = Describe("A VM in a cluster with several architectures", func() {
	DescribeTable("runs on a node with an architecture of its stemcell image:", func(ctx context.Context, architectures, node string) {
		env := newTestEnv(ctx)
		env.mustCall(ctx, "create_vm", "one", stemcellCID+architectures, map[string]any{}, dynamicNetwork(), []string{}, map[string]any{})
		pod, err := cluster.CoreV1().Pods(env.namespace).Get(ctx, "agent-one", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(pod.Spec.NodeName).To(MatchRegexp("^" + node + "$"))
	},
		Entry("amd64", "#amd64", "node-a"),
		Entry("arm64", "#arm64", "node-b"),
		Entry("both", "#amd64,arm64", "node-[ab]"),
		Entry("unknown", "", "node-[ab]"),
	)

	It("is not created if there is no such node", func(ctx context.Context) {
		env := newTestEnv(ctx)
		env.Director = env.directorWithTimeouts(map[string]any{"unschedulable": "0s"})
		failed := env.mustFail(ctx, "create_vm", "one", stemcellCID+"#s390x", map[string]any{}, dynamicNetwork(), []string{}, map[string]any{})
		Expect(failed.Message).To(ContainSubstring("didn't match Pod's node affinity/selector"))
		Expect(failed.OkToRetry).To(BeTrue())
	})
})
