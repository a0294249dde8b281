package call

import (
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestCall(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "call")
}

var _ = Describe("Strict decoding", func() {
	type inner struct {
		StorageClass string `json:"storage_class"`
	}
	type outer struct {
		Memory int     `json:"memory"`
		Disk   inner   `json:"disk"`
		List   []inner `json:"list"`
	}
	DescribeTable("names what is wrong",
		func(raw, message string) {
			Expect(DecodeStrict("cloud_properties", []byte(raw), &outer{})).To(MatchError(ContainSubstring(message)))
		},
		Entry("an unknown key", `{"memry":1}`, `unknown field "memry" (did you mean "memory"?)`),
		Entry("an unknown key below", `{"disk":{"storageclass":"x"}}`, `did you mean "storage_class"?`),
		Entry("an unknown key in a list", `{"list":[{"storage_clas":"x"}]}`, `did you mean "storage_class"?`),
		Entry("a key like no other", `{"zzzzzzzz":1}`, `unknown field "zzzzzzzz"`),
		Entry("the same key twice", `{"memory":1,"memory":2}`, `duplicate field "memory"`),
		Entry("a key in other letters", `{"Memory":1}`, `did you mean "memory"?`),
		Entry("a wrong type", `{"memory":"much"}`, "cloud_properties.memory: a string is not what belongs there"),
	)

	It("takes nothing for an empty hash", func() {
		Expect(DecodeStrict("x", nil, &outer{})).To(Succeed())
	})
})

var _ = Describe("Errors", func() {
	It("keep their type however often they are wrapped", func() {
		wrapped := fmt.Errorf("more: %w", errors.Join(NoVM("vm-1"), errors.New("and this")))
		Expect(AsBOSH(wrapped).Type()).To(BeEquivalentTo(VMNotFound))
	})
})

var _ = Describe("Marks of Pods", func() {
	options := PodOptions{Labels: map[string]string{"inject": "false"}, Annotations: map[string]string{"inject": "false", "other": "no"}}

	It("are added to what a Pod has", func() {
		given := map[string]string{"app": "x"}
		labels, annotations := options.MergeMetadata(given, nil)
		Expect(labels).To(Equal(map[string]string{"app": "x", "inject": "false"}))
		Expect(annotations).To(Equal(map[string]string{"inject": "false", "other": "no"}))
		Expect(given).To(HaveLen(1), "what was given is not changed")
	})

	It("leave alone what a Pod says itself, be it by a label or by an annotation", func() {
		labels, annotations := options.MergeMetadata(map[string]string{"inject": "true"}, nil)
		Expect(labels).To(Equal(map[string]string{"inject": "true"}))
		Expect(annotations).To(Equal(map[string]string{"other": "no"}))
		labels, annotations = options.MergeMetadata(nil, map[string]string{"inject": "true"})
		Expect(labels).To(BeEmpty())
		Expect(annotations).To(Equal(map[string]string{"inject": "true", "other": "no"}))
	})
})

var _ = Describe("A helper's limits", func() {
	It("are those of the options, and its requests are no higher", func() {
		options := PodOptions{HelperLimits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("16Mi")}}
		container := corev1.Container{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceMemory: resource.MustParse("32Mi"), corev1.ResourceCPU: resource.MustParse("10m")}}}
		options.applyLimits(&container)
		Expect(container.Resources.Limits).To(Equal(options.HelperLimits))
		Expect(container.Resources.Requests.Memory().String()).To(Equal("16Mi"))
		Expect(container.Resources.Requests.Cpu().String()).To(Equal("10m"))
	})

	It("may be none, and not 0", func() {
		container := corev1.Container{}
		PodOptions{}.applyLimits(&container)
		Expect(container.Resources.Limits).To(BeNil())
		nothing := PodOptions{HelperLimits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("0")}}
		Expect(nothing.Validate()).To(MatchError(ContainSubstring("pods.helper_limits.cpu must be greater than 0")))
	})
})

var _ = Describe("The path of lxcfs", func() {
	DescribeTable("is refused when nothing can be mounted there", func(path string) {
		Expect(PodOptions{LXCFS: path}.Validate()).To(MatchError(ContainSubstring(fmt.Sprintf("pods.lxcfs %q has to be the path", path))))
	}, Entry("relative", "lib/lxcfs"), Entry("the root", "/"), Entry("upwards", "/var/../lxcfs"), Entry("a folder with a slash", "/var/lib/lxcfs/"))

	It("may be none, and the packages'", func() {
		Expect(PodOptions{}.Validate()).To(Succeed())
		Expect(PodOptions{LXCFS: "/var/lib/lxcfs"}.Validate()).To(Succeed())
	})
})
