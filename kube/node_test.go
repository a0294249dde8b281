package kube_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/kube"
)

var _ = Describe("A node", func() {
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	node := func(ready corev1.ConditionStatus, taints ...string) *corev1.Node {
		n := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeDiskPressure, Status: corev1.ConditionUnknown},
			{Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.NewTime(since)},
		}}}
		for _, key := range taints {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key})
		}
		return n
	}

	It("is lost if its kubelet does not report, but not if it reports that it is not ready", func() {
		lostSince, lost := kube.NodeLost(node(corev1.ConditionUnknown))
		Expect(lost).To(BeTrue())
		Expect(lostSince).To(Equal(since))
		for _, ready := range []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse} {
			_, lost := kube.NodeLost(node(ready))
			Expect(lost).To(BeFalse())
		}
		_, lost = kube.NodeLost(&corev1.Node{})
		Expect(lost).To(BeFalse())
	})

	It("is out of service if it has the taint and is not ready", func() {
		Expect(kube.IsOutOfService(node(corev1.ConditionUnknown, corev1.TaintNodeOutOfService))).To(BeTrue())
		Expect(kube.IsOutOfService(node(corev1.ConditionFalse, corev1.TaintNodeOutOfService))).To(BeTrue())
		Expect(kube.IsOutOfService(node(corev1.ConditionTrue, corev1.TaintNodeOutOfService))).To(BeFalse())
		Expect(kube.IsOutOfService(node(corev1.ConditionUnknown, corev1.TaintNodeUnreachable))).To(BeFalse())
	})
})

var _ = Describe("VolumeProvisioning", func() {
	failed := func(count int32, message string) *corev1.Event {
		return &corev1.Event{Reason: "ProvisioningFailed", Message: message, Count: count, LastTimestamp: metav1.NewTime(time.Unix(int64(count), 0))}
	}

	It("returns the last message after three failures since the first call", func() {
		var provisioning kube.VolumeProvisioning
		Expect(provisioning.Failure([]*corev1.Event{failed(7, "fixed")})).To(BeEmpty())
		Expect(provisioning.Failure([]*corev1.Event{failed(7, "fixed"), failed(2, "quota")})).To(BeEmpty())
		Expect(provisioning.Failure([]*corev1.Event{failed(8, "no zone"), failed(2, "quota"), {Reason: "Provisioning", Count: 9}})).To(Equal("no zone"))
	})

	It("returns an error that the provisioner reports as infeasible", func() {
		var provisioning kube.VolumeProvisioning
		infeasible := "Volume provisioning failed with infeasible error. Retries will be delayed. no such pool"
		Expect(provisioning.Failure([]*corev1.Event{failed(1, infeasible)})).To(Equal(infeasible))
	})
})

var _ = Describe("VolumeNodeConflict", func() {
	unschedulable := func(message string) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: message}}}}
	}

	It("returns the scheduler's message if the node cannot use the volume, but not if the node lacks capacity", func() {
		elsewhere := "0/2 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity, 1 node(s) didn't match Pod's node affinity/selector."
		Expect(kube.VolumeNodeConflict(unschedulable(elsewhere))).To(Equal(elsewhere))
		Expect(kube.VolumeNodeConflict(unschedulable("0/1 nodes are available: 1 Insufficient memory."))).To(BeEmpty())
		Expect(kube.VolumeNodeConflict(&corev1.Pod{})).To(BeEmpty())
	})
})
