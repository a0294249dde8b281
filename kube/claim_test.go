package kube_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/kube"
)

var _ = DescribeTable("A claim", func(volume string, completed bool, phase corev1.PersistentVolumeClaimPhase, is string) {
	claim := &corev1.PersistentVolumeClaim{
		Spec:   corev1.PersistentVolumeClaimSpec{VolumeName: volume},
		Status: corev1.PersistentVolumeClaimStatus{Phase: phase},
	}
	if completed {
		claim.ObjectMeta = metav1.ObjectMeta{Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}}
	}
	told := []string{}
	for name, holds := range map[string]bool{"never bound": kube.NeverBound(claim), "bound": kube.Bound(claim), "binding": kube.Binding(claim)} {
		if holds {
			told = append(told, name)
		}
	}
	if is == "" {
		Expect(told).To(BeEmpty())
	} else {
		Expect(told).To(ConsistOf(is))
	}
},
	Entry("that is new has never been bound", "", false, corev1.ClaimPending, "never bound"),
	Entry("that names a volume which is not its own yet has none, and may have data", "v", false, corev1.ClaimPending, ""),
	Entry("whose volume is its own has it, before the status says so", "v", true, corev1.ClaimPending, "binding"),
	Entry("that is bound has its volume", "v", true, corev1.ClaimBound, "bound"),
	Entry("that has lost its volume has none, and may have data", "v", true, corev1.ClaimLost, ""),
)
