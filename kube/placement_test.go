package kube_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/kube"
)

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
