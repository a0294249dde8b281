package manifest_test

import (
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

func term(key string, values ...string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values},
	}}
}

func volumeIn(terms ...corev1.NodeSelectorTerm) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{NodeAffinity: &corev1.VolumeNodeAffinity{
		Required: &corev1.NodeSelector{NodeSelectorTerms: terms},
	}}}
}

// requiredTerms returns the terms of the required node affinity.
func requiredTerms(affinity *corev1.Affinity) []corev1.NodeSelectorTerm {
	return affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

var _ = Describe("The image of a VM", func() {
	linux, architectures := term("kubernetes.io/os", "linux"), term("kubernetes.io/arch", "amd64", "arm64")

	It("restricts the VM to Linux nodes", func() {
		vm := testVM()
		vm.AddPlatformAffinity()
		Expect(requiredTerms(vm.Pod().Spec.Affinity)).To(Equal([]corev1.NodeSelectorTerm{linux}))
	})

	It("does not restrict the VM to its architectures if the node selector has one, because its nodes may emulate others", func() {
		vm := testVM()
		vm.NodeSelector = map[string]string{"kubernetes.io/arch": "arm64"}
		vm.AddPlatformAffinity("amd64")
		Expect(requiredTerms(vm.Affinity)).To(Equal([]corev1.NodeSelectorTerm{linux}))
	})

	It("restricts the VM to nodes of the image's architectures, in addition to its own affinity", func() {
		vm := testVM()
		vm.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{term("disk", "ssd"), term("disk", "nvme")}}}}
		vm.AddPlatformAffinity("amd64", "arm64")
		Expect(requiredTerms(vm.Affinity)).To(HaveLen(2))
		Expect(requiredTerms(vm.Affinity)[1].MatchExpressions).To(Equal(slices.Concat(
			term("disk", "nvme").MatchExpressions, linux.MatchExpressions, architectures.MatchExpressions)))
	})
})

var _ = Describe("A VM with disks", func() {

	It("is restricted to nodes that can use its volume", func() {
		vm := testVM()
		vm.AddVolumeAffinity(volumeIn(term("zone", "a"), term("zone", "b")))
		Expect(requiredTerms(vm.Affinity)).To(Equal([]corev1.NodeSelectorTerm{term("zone", "a"), term("zone", "b")}))
	})

	It("is restricted to nodes that match all its volumes and its own affinity", func() {
		vm := testVM()
		vm.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{term("disk", "ssd")}}}}
		original := vm.Affinity.DeepCopy()
		vm.AddVolumeAffinity(volumeIn(term("zone", "a")), volumeIn(term("host", "1"), term("host", "2")))
		Expect(requiredTerms(vm.Affinity)).To(HaveLen(2))
		Expect(requiredTerms(vm.Affinity)[1].MatchExpressions).To(HaveExactElements(
			HaveField("Key", "disk"), HaveField("Key", "zone"), HaveField("Values", []string{"2"})))
		Expect(original.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms).To(HaveLen(1))
	})

	It("is not restricted by volumes without a node affinity", func() {
		vm := testVM()
		vm.AddVolumeAffinity(&corev1.PersistentVolume{})
		Expect(vm.Affinity).To(BeNil())
	})
})
