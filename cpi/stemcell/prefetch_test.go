package stemcell

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	images "bosh-kubernetes-cpi/stemcell"
)

func TestStemcell(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "stemcell methods")
}

var _ = Describe("stemcell.prefetch", func() {
	DescribeTable("is rejected with the name of the invalid setting", func(content, message string) {
		var options images.Options
		err := call.DecodeStrict("stemcell", []byte(content), &options)
		if err == nil {
			err = ValidatePrefetch(options.Prefetch)
		}
		Expect(err).To(MatchError(HavePrefix(message)))
	},
		Entry("an unknown key", `{"prefetch":{"enable":true}}`, `stemcell: unknown field "prefetch.enable" (did you mean "enabled"?)`),
		Entry("not a boolean", `{"prefetch":{"enabled":"yes"}}`, "stemcell.prefetch.enabled must be true or false, not a string"),
		Entry("an invalid label key", `{"prefetch":{"node_selector":{"-":"a"}}}`, `stemcell.prefetch.node_selector: "-" is not a valid label name`),
		Entry("an invalid label value", `{"prefetch":{"node_selector":{"zone":"a b"}}}`, `stemcell.prefetch.node_selector.zone: "a b" is not a valid label value`),
		Entry("an unknown operator", `{"prefetch":{"tolerations":[{"key":"a","operator":"In"}]}}`,
			`stemcell.prefetch.tolerations[0].operator "In" is not valid; use Equal or Exists`),
		Entry("an unknown effect", `{"prefetch":{"tolerations":[{"key":"a","operator":"Exists"},{"key":"a","effect":"noSchedule"}]}}`,
			`stemcell.prefetch.tolerations[1].effect "noSchedule" is not valid; use NoSchedule, PreferNoSchedule or NoExecute`),
		Entry("a missing key", `{"prefetch":{"tolerations":[{"value":"a"}]}}`, "stemcell.prefetch.tolerations[0].key is missing"),
		Entry("an invalid key", `{"prefetch":{"tolerations":[{"key":"a b"}]}}`, `stemcell.prefetch.tolerations[0].key "a b" is not a valid taint key`),
		Entry("a value with operator Exists", `{"prefetch":{"tolerations":[{"key":"a","operator":"Exists","value":"b"}]}}`, "stemcell.prefetch.tolerations[0].value and operator Exists are mutually exclusive"),
		Entry("an invalid value", `{"prefetch":{"tolerations":[{"key":"a","value":"b c"}]}}`, `stemcell.prefetch.tolerations[0].value "b c" is not a valid taint value`),
		Entry("tolerationSeconds without effect NoExecute", `{"prefetch":{"tolerations":[{"key":"a","tolerationSeconds":60}]}}`,
			"stemcell.prefetch.tolerations[0].tolerationSeconds requires effect NoExecute"),
	)

	It("caps the helper limits, and sets none that helper Pods do not have", func() {
		limited := func(limits corev1.ResourceList) corev1.ResourceList {
			pod := call.PodOptions{HelperLimits: limits}.ApplyToHelperPod(manifest.Prefetch{}.Pod())
			capLimits(manifest.OwnContainer(pod).Resources.Limits)
			return manifest.OwnContainer(pod).Resources.Limits
		}
		Expect(limited(nil)).To(BeEmpty())
		some := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceEphemeralStorage: resource.MustParse("1Gi")}
		Expect(limited(some)).To(Equal(some))
		Expect(limited(call.DefaultPodOptions().HelperLimits)).To(Equal(corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("32Mi")}))
	})
})
