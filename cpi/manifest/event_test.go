package manifest_test

import (
	"strings"
	"time"
	"unicode/utf8"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/manifest"
)

var _ = Describe("An Event", func() {
	newEvent := func(message string) *corev1.Event {
		return manifest.Event{
			About:    corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "bosh", Name: "agent-1", UID: "uid-1"},
			Director: "d-1", Call: "call-1", Reason: "DetachRejected", Message: message, Warning: true,
			At: metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)),
		}.Object()
	}

	It("has the form of client-go's recorder", func() {
		expectGolden("event", newEvent("detach_disk (disk disk-1) failed after 1.2 s: in use"))
	})

	It("truncates its message to Kubernetes' limit, in whole characters", func() {
		for _, character := range []string{"a", "ö", "…", "😀"} {
			for lead := range 4 {
				message := strings.Repeat("x", lead) + strings.Repeat(character, 2000)
				truncated := newEvent(message).Message
				Expect(len(truncated)).To(BeNumerically("~", 1024, 4))
				Expect(len(truncated)).To(BeNumerically("<=", 1024))
				Expect(utf8.ValidString(truncated)).To(BeTrue())
				Expect(message).To(HavePrefix(strings.TrimSuffix(truncated, "…")))
			}
		}
		Expect(newEvent(strings.Repeat("a", 1024)).Message).To(Equal(strings.Repeat("a", 1024)))
		Expect(newEvent("a\xffb").Message).To(Equal("a\uFFFDb"))
	})
})
