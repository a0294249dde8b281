package manifest_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/kube/manifest"
)

func term(key string, values ...string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}}}
}

func volumeIn(terms ...corev1.NodeSelectorTerm) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: terms}}}}
}

var _ = Describe("A machine with disks", func() {
	required := func(vm manifest.VM) []corev1.NodeSelectorTerm {
		return vm.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	}

	It("goes where its volume can be reached", func() {
		vm := machine()
		vm.Near(volumeIn(term("zone", "a"), term("zone", "b")))
		Expect(required(vm)).To(Equal([]corev1.NodeSelectorTerm{term("zone", "a"), term("zone", "b")}))
	})

	It("goes where all of its volumes, and its own affinity, agree", func() {
		vm := machine()
		vm.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{term("disk", "ssd")}}}}
		asked := vm.Affinity.DeepCopy()
		vm.Near(volumeIn(term("zone", "a")), volumeIn(term("host", "1"), term("host", "2")))
		Expect(required(vm)).To(HaveLen(2))
		Expect(required(vm)[1].MatchExpressions).To(HaveExactElements(
			HaveField("Key", "disk"), HaveField("Key", "zone"), HaveField("Values", []string{"2"})))
		Expect(asked.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms).To(HaveLen(1))
	})

	It("goes anywhere when its volumes can be reached from anywhere", func() {
		vm := machine()
		vm.Near(&corev1.PersistentVolume{})
		Expect(vm.Affinity).To(BeNil())
	})
})
