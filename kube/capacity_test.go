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

var _ = Describe("UnmatchedPlacement", func() {
	node := func(name, zone string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": zone, "host": name}}}
	}
	nodes := []*corev1.Node{node("a", "z1"), node("b", "z2")}
	onHost := func(hosts ...string) *corev1.Affinity {
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: "host", Operator: corev1.NodeSelectorOpIn, Values: hosts}}}}}}}
	}
	DescribeTable("names the unmatched requirement:", func(spec corev1.PodSpec, expected string) {
		Expect(kube.UnmatchedPlacement(&corev1.Pod{Spec: spec}, nodes)).To(Equal(expected))
	},
		Entry("none, if a node matches", corev1.PodSpec{NodeSelector: map[string]string{"zone": "z1"}, Affinity: onHost("a", "c")}, ""),
		Entry("a label that no node has", corev1.PodSpec{NodeSelector: map[string]string{"host": "a", "zone": "z9"}},
			"the node label zone=z9, which no node has"),
		Entry("labels that no node has together", corev1.PodSpec{NodeSelector: map[string]string{"host": "a", "zone": "z2"}},
			"the node labels host=a,zone=z2, which no node has together"),
		Entry("an affinity to no node", corev1.PodSpec{Affinity: onHost("c")}, "a node affinity that no node matches: host In [c]"),
		Entry("a label and an affinity that exclude each other", corev1.PodSpec{NodeSelector: map[string]string{"zone": "z2"}, Affinity: onHost("a")},
			"the node labels zone=z2, which no node has that matches the node affinity: host In [a]"),
	)

	It("is empty without nodes", func() {
		pod := &corev1.Pod{Spec: corev1.PodSpec{NodeSelector: map[string]string{"zone": "z9"}}}
		Expect(kube.UnmatchedPlacement(pod, nil)).To(BeEmpty())
	})
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
		Expect(kube.UnsatisfiableRequest(podWithRequests("2", "2500m"), []*corev1.Node{nodeWith("4"), nodeWith("2")})).To(Equal("cpu: 4500m, and the largest node has 4"))
		Expect(kube.UnsatisfiableRequest(podWithRequests("2", "2"), []*corev1.Node{nodeWith("2"), nodeWith("4")})).To(BeEmpty())
	})

	It("returns an empty string without nodes", func() {
		Expect(kube.UnsatisfiableRequest(podWithRequests("2"), nil)).To(BeEmpty())
	})
})
