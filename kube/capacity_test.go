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

var _ = Describe("What an autoscaler says of a Pod", func() {
	after := func(seconds int, reason, message string) *corev1.Event {
		return &corev1.Event{Reason: reason, Message: message, LastTimestamp: metav1.NewTime(time.Unix(int64(seconds), 0))}
	}
	DescribeTable("is what it said last", func(expected kube.AutoscalerDecision, events ...*corev1.Event) {
		Expect(kube.AutoscalerDecisionOf(events)).To(Equal(expected))
	},
		Entry("when there is none", kube.AutoscalerDecision{}, after(1, "FailedScheduling", "0/3 nodes are available")),
		Entry("when it brings a node", kube.AutoscalerDecision{ScalesUp: true}, after(2, "TriggeredScaleUp", "…"), after(1, "NotTriggerScaleUp", "max size reached")),
		Entry("when Karpenter does", kube.AutoscalerDecision{ScalesUp: true}, after(1, "Nominated", "Pod should schedule on: nodeclaim/a")),
		Entry("when it does not", kube.AutoscalerDecision{Refusal: "max size reached"}, after(2, "NotTriggerScaleUp", "max size reached"), after(1, "TriggeredScaleUp", "…")),
		Entry("when it will later", kube.AutoscalerDecision{ScalesUp: true}, after(1, "NotTriggerScaleUp", "1 in backoff after failed scale-up")),
	)
})

var _ = Describe("A Pod that is too large", func() {
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

	It("fits on no node, with all its containers", func() {
		Expect(kube.TooLarge(asking("2", "2500m"), []*corev1.Node{holding("4"), holding("2")})).To(Equal("cpu: 4500m"))
		Expect(kube.TooLarge(asking("2", "2"), []*corev1.Node{holding("2"), holding("4")})).To(BeEmpty())
	})

	It("is not known of a cluster without nodes", func() {
		Expect(kube.TooLarge(asking("2"), nil)).To(BeEmpty())
	})
})
