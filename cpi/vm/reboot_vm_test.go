package vm

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
)

var _ = Describe("reboot_vm", func() {
	DescribeTable("reports the state of a Pod that is not active", func(pod *corev1.Pod, state string) {
		pod.Name, pod.Spec.NodeName = "agent-1", "node-1"
		err := hotPlugStrategy{&Session{}}.restartVM(manifest.VMPod{Pod: pod})
		Expect(err).To(MatchError("cannot reboot VM agent-1: its Pod is " + state + "; recreate the VM"))
		Expect(call.CodeVMNotRunning.Is(err)).To(BeTrue())
	},
		Entry("being deleted", &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.Now())}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
		}, "being deleted"),
		Entry("failed", &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed}}, "Failed"),
	)
})
