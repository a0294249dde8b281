package kube

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var _ = Describe("EventsAbout", func() {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "1"}}

	It("excludes the program's own events", func() {
		client := &Client{component: "program"}
		Expect(client.EventsAbout(pod).Fields).To(Equal("involvedObject.uid=1,reportingComponent!=program"))
	})

	It("selects all events if the program's name is unknown", func() {
		Expect((&Client{}).EventsAbout(pod).Fields).To(Equal("involvedObject.uid=1"))
	})
})
