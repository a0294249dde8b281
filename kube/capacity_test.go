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
	eventAt := func(seconds int, reason, message string) *corev1.Event {
		return &corev1.Event{Reason: reason, Message: message, LastTimestamp: metav1.NewTime(time.Unix(int64(seconds), 0))}
	}
	DescribeTable("returns the last decision", func(expected kube.AutoscalerDecision, events ...*corev1.Event) {
		Expect(kube.AutoscalerDecisionOf(events)).To(Equal(expected))
	},
		Entry("if no event is from an autoscaler", kube.AutoscalerDecision{}, eventAt(1, "FailedScheduling", "0/3 nodes are available")),
		Entry("if the cluster autoscaler adds a node", kube.AutoscalerDecision{ScalesUp: true}, eventAt(2, "TriggeredScaleUp", "…"), eventAt(1, "NotTriggerScaleUp", "max size reached")),
		Entry("if Karpenter adds a node", kube.AutoscalerDecision{ScalesUp: true}, eventAt(1, "Nominated", "Pod should schedule on: nodeclaim/a")),
		Entry("if the cluster autoscaler adds no node", kube.AutoscalerDecision{Reason: "max size reached"}, eventAt(2, "NotTriggerScaleUp", "max size reached"), eventAt(1, "TriggeredScaleUp", "…")),
		Entry("if the cluster autoscaler retries after its backoff", kube.AutoscalerDecision{ScalesUp: true}, eventAt(1, "NotTriggerScaleUp", "1 in backoff after failed scale-up")),
	)
})

var _ = Describe("UnsatisfiableRequest", func() {
	nodeWith := func(cpu string) *corev1.Node {
		return &corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}
	}
	podWithRequests := func(cpus ...string) *corev1.Pod {
		pod := &corev1.Pod{}
		for _, cpu := range cpus {
			requests := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Resources: corev1.ResourceRequirements{Requests: requests}})
		}
		return pod
	}

	It("compares the sum of all containers' requests with each node", func() {
		Expect(kube.UnsatisfiableRequest(podWithRequests("2", "2500m"), []*corev1.Node{nodeWith("4"), nodeWith("2")})).To(Equal("cpu: 4500m"))
		Expect(kube.UnsatisfiableRequest(podWithRequests("2", "2"), []*corev1.Node{nodeWith("2"), nodeWith("4")})).To(BeEmpty())
	})

	It("returns an empty string without nodes", func() {
		Expect(kube.UnsatisfiableRequest(podWithRequests("2"), nil)).To(BeEmpty())
	})
})
