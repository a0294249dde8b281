package kube_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/kube"
)

var _ = DescribeTable("The state of a PVC", func(volume string, completed bool, phase corev1.PersistentVolumeClaimPhase, want ...string) {
	pvc := &corev1.PersistentVolumeClaim{
		Spec:   corev1.PersistentVolumeClaimSpec{VolumeName: volume},
		Status: corev1.PersistentVolumeClaimStatus{Phase: phase},
	}
	if completed {
		pvc.ObjectMeta = metav1.ObjectMeta{Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}}
	}
	states := []string{}
	for name, matches := range map[string]bool{"has a volume": kube.HasVolume(pvc), "bound": kube.IsBound(pvc)} {
		if matches {
			states = append(states, name)
		}
	}
	Expect(states).To(ConsistOf(want))
},
	Entry("is in none of these states if it is new", "", false, corev1.ClaimPending),
	Entry("is in none of these states if it names an existing volume that is not bound yet", "v", false, corev1.ClaimPending),
	Entry("has a volume before its phase is updated", "v", true, corev1.ClaimPending, "has a volume"),
	Entry("is bound", "v", true, corev1.ClaimBound, "has a volume", "bound"),
	Entry("is in none of these states if it lost its volume", "v", true, corev1.ClaimLost),
)
