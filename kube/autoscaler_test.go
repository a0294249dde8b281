package kube_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/kube"
)

var _ = Describe("AutoscalerDecisionOf", func() {
	eventAt := func(seconds int, reason, message string) *corev1.Event {
		return &corev1.Event{Reason: reason, Message: message, LastTimestamp: metav1.NewTime(time.Unix(int64(seconds), 0))}
	}
	DescribeTable("returns the last decision, or none:", func(expected kube.AutoscalerDecision, events ...*corev1.Event) {
		Expect(kube.AutoscalerDecisionOf(events)).To(Equal(expected))
	},
		Entry("if no event is from an autoscaler", kube.AutoscalerDecision{}, eventAt(1, "FailedScheduling", "0/3 nodes are available")),
		Entry("if the cluster autoscaler adds a node", kube.AutoscalerDecision{ScalesUp: true}, eventAt(2, "TriggeredScaleUp", "…"), eventAt(1, "NotTriggerScaleUp", "max size reached")),
		Entry("if Karpenter adds a node", kube.AutoscalerDecision{ScalesUp: true}, eventAt(1, "Nominated", "Pod should schedule on: nodeclaim/a")),
		Entry("if the cluster autoscaler adds no node", kube.AutoscalerDecision{Reason: "max size reached"}, eventAt(2, "NotTriggerScaleUp", "max size reached"), eventAt(1, "TriggeredScaleUp", "…")),
		Entry("if the cluster autoscaler retries after its backoff", kube.AutoscalerDecision{ScalesUp: true}, eventAt(1, "NotTriggerScaleUp", "1 in backoff after failed scale-up")),
	)
})
