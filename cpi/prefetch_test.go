package cpi

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube/manifest"
)

var _ = Describe("What nodes pull images by", func() {
	DescribeTable("is refused with the name of the setting that is wrong", func(content, message string) {
		config := DefaultConfig()
		config.Agent.Mbus = "nats://10.0.0.6:4222"
		err := call.DecodeStrict("stemcell", []byte(content), &config.Stemcell)
		if err == nil {
			err = config.Validate()
		}
		Expect(err).To(MatchError(HavePrefix(message)))
	},
		Entry("a key that there is not", `{"prefetch":{"enable":true}}`, `stemcell: unknown field "prefetch.enable" (did you mean "enabled"?)`),
		Entry("no truth", `{"prefetch":{"enabled":"yes"}}`, "stemcell.prefetch.enabled: a string is not what belongs there (it takes true or false)"),
		Entry("a label that is none", `{"prefetch":{"node_selector":{"-":"a"}}}`, `stemcell.prefetch.node_selector: "-" is not a label's name`),
		Entry("a label's value that is none", `{"prefetch":{"node_selector":{"zone":"a b"}}}`, `stemcell.prefetch.node_selector.zone: "a b" is not a label's value`),
		Entry("an operator that there is not", `{"prefetch":{"tolerations":[{"key":"a","operator":"In"}]}}`,
			`stemcell.prefetch.tolerations[0].operator "In" is none of Equal, Exists`),
		Entry("an effect that there is not", `{"prefetch":{"tolerations":[{"key":"a","operator":"Exists"},{"key":"a","effect":"noSchedule"}]}}`,
			`stemcell.prefetch.tolerations[1].effect "noSchedule" is none of NoSchedule, PreferNoSchedule, NoExecute`),
		Entry("no key", `{"prefetch":{"tolerations":[{"value":"a"}]}}`, "stemcell.prefetch.tolerations[0].key is missing"),
		Entry("a key that is none", `{"prefetch":{"tolerations":[{"key":"a b"}]}}`, `stemcell.prefetch.tolerations[0].key "a b" is not a taint's key`),
		Entry("a value beside Exists", `{"prefetch":{"tolerations":[{"key":"a","operator":"Exists","value":"b"}]}}`, "stemcell.prefetch.tolerations[0].value is set"),
		Entry("a value that is none", `{"prefetch":{"tolerations":[{"key":"a","value":"b c"}]}}`, `stemcell.prefetch.tolerations[0].value "b c" is not a taint's value`),
		Entry("a time without what it is for", `{"prefetch":{"tolerations":[{"key":"a","tolerationSeconds":60}]}}`,
			"stemcell.prefetch.tolerations[0].tolerationSeconds is for effect NoExecute alone"),
	)

	It("keeps far below the limits of helpers, and has none where they have none", func() {
		limited := func(limits corev1.ResourceList) corev1.ResourceList {
			return manifest.OwnContainer(capLimits(call.PodOptions{HelperLimits: limits}.ApplyToHelperPod(manifest.Prefetch{}.Pod()))).Resources.Limits
		}
		Expect(limited(nil)).To(BeEmpty())
		some := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceEphemeralStorage: resource.MustParse("1Gi")}
		Expect(limited(some)).To(Equal(some))
		Expect(limited(call.DefaultPodOptions().HelperLimits)).To(Equal(corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("32Mi")}))
	})
})
