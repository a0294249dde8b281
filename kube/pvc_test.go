package kube_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/kube"
)

var _ = DescribeTable("A claim", func(volume string, completed bool, phase corev1.PersistentVolumeClaimPhase, is string) {
	pvc := &corev1.PersistentVolumeClaim{
		Spec:   corev1.PersistentVolumeClaimSpec{VolumeName: volume},
		Status: corev1.PersistentVolumeClaimStatus{Phase: phase},
	}
	if completed {
		pvc.ObjectMeta = metav1.ObjectMeta{Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}}
	}
	states := []string{}
	for name, holds := range map[string]bool{"never bound": kube.NeverBound(pvc), "bound": kube.Bound(pvc), "binding": kube.Binding(pvc)} {
		if holds {
			states = append(states, name)
		}
	}
	if is == "" {
		Expect(states).To(BeEmpty())
	} else {
		Expect(states).To(ConsistOf(is))
	}
},
	Entry("that is new has never been bound", "", false, corev1.ClaimPending, "never bound"),
	Entry("that names a volume which is not its own yet has none, and may have data", "v", false, corev1.ClaimPending, ""),
	Entry("whose volume is its own has it, before the status says so", "v", true, corev1.ClaimPending, "binding"),
	Entry("that is bound has its volume", "v", true, corev1.ClaimBound, "bound"),
	Entry("that has lost its volume has none, and may have data", "v", true, corev1.ClaimLost, ""),
)
