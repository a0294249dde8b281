package manifest_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube/extension"
)

var _ = Describe("A prefetch DaemonSet", func() {
	prefetch := func() manifest.Prefetch {
		return manifest.Prefetch{
			Namespace: "bosh", Director: "d1", Stemcell: "registry/stemcell@sha256:00#amd64", Reference: "registry/stemcell@sha256:00",
			Image: "mirror/stemcell@sha256:00", Architectures: []string{"amd64"}, NodeSelector: map[string]string{"dedicated": "bosh"},
			Tolerations: []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}},
			PullSecrets: []corev1.LocalObjectReference{{Name: "registry"}},
		}
	}
	daemonSet := func(p manifest.Prefetch) *extension.DaemonSet {
		GinkgoHelper()
		set, err := p.DaemonSet(p.Pod())
		Expect(err).NotTo(HaveOccurred())
		return set
	}

	It("runs a program of the image that sleeps without privileges, on the selected nodes", func() {
		expectGolden("prefetch", daemonSet(prefetch()))
	})

	It("has one name per image and director, which is a valid label value", func() {
		name := manifest.PrefetchName("d1", "registry/stemcell@sha256:00")
		Expect(validation.IsDNS1123Label(name)).To(BeEmpty())
		other := prefetch()
		other.Stemcell, other.Image, other.Tolerations = other.Reference, other.Reference, nil
		Expect(daemonSet(other).Name).To(Equal(name))
		Expect(manifest.PrefetchName("d2", "registry/stemcell@sha256:00")).NotTo(Equal(name))
		Expect(manifest.PrefetchName("d1", "registry/stemcell@sha256:01")).NotTo(Equal(name))
	})

	It("has another digest with other settings", func() {
		other := prefetch()
		other.NodeSelector = nil
		Expect(daemonSet(prefetch()).Annotations).To(Equal(daemonSet(prefetch()).Annotations))
		Expect(daemonSet(other).Annotations[manifest.AnnotationDigest]).NotTo(Equal(daemonSet(prefetch()).Annotations[manifest.AnnotationDigest]))
	})
})
