package instances

import (
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2" // not a dot import: the package has a Describe, too
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/manifest"
)

func TestInstances(t *testing.T) {
	RegisterFailHandler(ginkgo.Fail)
	ginkgo.RunSpecs(t, "instances")
}

var _ = ginkgo.Describe("diskState", func() {
	ginkgo.It("follows the readiness and the deletion of the attachment Pod", func() {
		attachment := manifest.AttachmentPod{Pod: &corev1.Pod{}}
		Expect(diskState(attachment)).To(Equal("Attaching"))
		attachment.Status = corev1.PodStatus{
			Phase:      corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: manifest.OwnContainerName(attachment.Pod), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			}},
		}
		Expect(diskState(attachment)).To(Equal("Attached"))
		attachment.DeletionTimestamp = new(metav1.NewTime(time.Now()))
		Expect(diskState(attachment)).To(Equal("Detaching"))
	})

	ginkgo.It("is Lost if the attachment Pod was evicted", func() {
		evicted := manifest.AttachmentPod{Pod: &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}}}
		Expect(diskState(evicted)).To(Equal("Lost"))
	})
})
