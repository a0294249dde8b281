package kube_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"bosh-kubernetes-cpi/kube"
)

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
