package call

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestCall(t *testing.T) {
	RegisterFailHandler(Fail)
	suite = t
	RunSpecs(t, "call")
}

var suite *testing.T // for [memoryapi.InVirtualTime]

var _ = Describe("AsBOSH", func() {
	It("keeps the type of a wrapped error", func() {
		wrapped := fmt.Errorf("more: %w", errors.Join(VMNotFoundError("vm-1"), errors.New("and this")))
		Expect(AsBOSHError(wrapped).Type()).To(BeEquivalentTo(VMNotFound))
	})
})

var _ = Describe("Codes", func() {
	It("are variables named after the code", func() {
		source, err := os.ReadFile("codes.go")
		Expect(err).NotTo(HaveOccurred())
		variables := regexp.MustCompile(`(?m)^\t(\w+) += newCode\("([a-z-]+)"`).FindAllStringSubmatch(string(source), -1)
		Expect(variables).To(HaveLen(len(Codes)))
		for _, variable := range variables {
			Expect(strings.ToLower(variable[1])).To(Equal("code" + strings.ReplaceAll(variable[2], "-", "")))
		}
	})
})

var _ = Describe("PodOptions.MergeMetadata", func() {
	options := PodOptions{Labels: map[string]string{"inject": "false"}, Annotations: map[string]string{"inject": "false", "other": "no"}}

	It("adds labels and annotations to those of a Pod", func() {
		podLabels := map[string]string{"app": "x"}
		labels, annotations := options.MergeMetadata(podLabels, nil)
		Expect(labels).To(Equal(map[string]string{"app": "x", "inject": "false"}))
		Expect(annotations).To(Equal(map[string]string{"inject": "false", "other": "no"}))
		Expect(podLabels).To(HaveLen(1), "the argument is not changed")
	})

	It("adds nothing for a key that the Pod has as a label or as an annotation", func() {
		labels, annotations := options.MergeMetadata(map[string]string{"inject": "true"}, nil)
		Expect(labels).To(Equal(map[string]string{"inject": "true"}))
		Expect(annotations).To(Equal(map[string]string{"other": "no"}))
		labels, annotations = options.MergeMetadata(nil, map[string]string{"inject": "true"})
		Expect(labels).To(BeEmpty())
		Expect(annotations).To(Equal(map[string]string{"inject": "true", "other": "no"}))
	})
})

var _ = Describe("PodOptions.HelperLimits", func() {
	It("limit a helper container, and its requests", func() {
		options := PodOptions{HelperLimits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("16Mi")}}
		container := corev1.Container{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceMemory: resource.MustParse("32Mi"), corev1.ResourceCPU: resource.MustParse("10m")}}}
		options.applyResources(&container)
		Expect(container.Resources.Limits).To(Equal(options.HelperLimits))
		Expect(container.Resources.Requests.Memory().String()).To(Equal("16Mi"))
		Expect(container.Resources.Requests.Cpu().String()).To(Equal("10m"))
	})

	It("may be empty, but not 0", func() {
		container := corev1.Container{}
		PodOptions{}.applyResources(&container)
		Expect(container.Resources.Limits).To(BeNil())
		zero := PodOptions{HelperLimits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("0")}}
		Expect(zero.Validate()).To(MatchError(ContainSubstring("kubernetes.pods.helper_limits.cpu must be greater than 0")))
		Expect(PodOptions{HelperRequests: zero.HelperLimits}.Validate()).To(MatchError(ContainSubstring("kubernetes.pods.helper_requests.cpu must be greater than 0")))
		larger := DefaultPodOptions()
		larger.HelperRequests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")}
		Expect(larger.Validate()).To(MatchError(ContainSubstring("kubernetes.pods.helper_requests.memory is greater than kubernetes.pods.helper_limits.memory")))
	})
})

var _ = Describe("PodOptions.LXCFS", func() {
	DescribeTable("rejects", func(path string) {
		Expect(PodOptions{LXCFS: path}.Validate()).To(MatchError(ContainSubstring(fmt.Sprintf("kubernetes.pods.lxcfs_path %q is not a valid path", path))))
	},
		Entry("a relative path", "lib/lxcfs"),
		Entry("the root directory", "/"),
		Entry("a path with ..", "/var/../lxcfs"),
		Entry("a path with a slash at the end", "/var/lib/lxcfs/"),
	)

	It("accepts no path, and the default path of lxcfs packages", func() {
		Expect(PodOptions{}.Validate()).To(Succeed())
		Expect(PodOptions{LXCFS: "/var/lib/lxcfs"}.Validate()).To(Succeed())
	})
})
