package kube_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/kube"
)

var _ = Describe("AutoscalerDecisionOf", func() {
	after := func(seconds int, reason, message string) *corev1.Event {
		return &corev1.Event{Reason: reason, Message: message, LastTimestamp: metav1.NewTime(time.Unix(int64(seconds), 0))}
	}
	DescribeTable("returns the last decision", func(expected kube.AutoscalerDecision, events ...*corev1.Event) {
		Expect(kube.AutoscalerDecisionOf(events)).To(Equal(expected))
	},
		Entry("if no event is of an autoscaler", kube.AutoscalerDecision{}, after(1, "FailedScheduling", "0/3 nodes are available")),
		Entry("if the cluster autoscaler adds a node", kube.AutoscalerDecision{ScalesUp: true}, after(2, "TriggeredScaleUp", "…"), after(1, "NotTriggerScaleUp", "max size reached")),
		Entry("if Karpenter adds a node", kube.AutoscalerDecision{ScalesUp: true}, after(1, "Nominated", "Pod should schedule on: nodeclaim/a")),
		Entry("if the cluster autoscaler adds none", kube.AutoscalerDecision{Refusal: "max size reached"}, after(2, "NotTriggerScaleUp", "max size reached"), after(1, "TriggeredScaleUp", "…")),
		Entry("if the cluster autoscaler tries again after its backoff", kube.AutoscalerDecision{ScalesUp: true}, after(1, "NotTriggerScaleUp", "1 in backoff after failed scale-up")),
	)
})

var _ = Describe("TooLarge", func() {
	holding := func(cpu string) *corev1.Node {
		return &corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}
	}
	asking := func(amounts ...string) *corev1.Pod {
		pod := &corev1.Pod{}
		for _, cpu := range amounts {
			requests := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Resources: corev1.ResourceRequirements{Requests: requests}})
		}
		return pod
	}

	It("compares the sum of all containers' requests with each node", func() {
		Expect(kube.TooLarge(asking("2", "2500m"), []*corev1.Node{holding("4"), holding("2")})).To(Equal("cpu: 4500m"))
		Expect(kube.TooLarge(asking("2", "2"), []*corev1.Node{holding("2"), holding("4")})).To(BeEmpty())
	})

	It("returns nothing without nodes", func() {
		Expect(kube.TooLarge(asking("2"), nil)).To(BeEmpty())
	})
})
