package manifest_test

import (
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/kube/manifest"
)

// withSidecar is the Pod after a webhook has put a container before the CPI's, as some injectors of proxies do, with
// mounts of its own, and after the kubelet has reported of both, sorted by name.
func withSidecar(pod *corev1.Pod, own corev1.ContainerStatus) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Spec.Containers = slices.Insert(pod.Spec.Containers, 0, corev1.Container{
		Name: "a-proxy", Image: "registry/proxy", VolumeMounts: []corev1.VolumeMount{{Name: "token", MountPath: "/dev/bosh/none"}},
	})
	own.Name = manifest.OwnContainerName(pod)
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "a-proxy", ContainerID: "containerd://proxy", RestartCount: 7, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}, own,
	}
	return pod
}

var _ = Describe("A Pod in which the cluster has put a container of its own first", func() {
	vmPod := func() *corev1.Pod {
		return withSidecar(runningPod(testVM()), corev1.ContainerStatus{ContainerID: "containerd://machine", RestartCount: 2})
	}

	It("has attachments that run from the machine's image", func() {
		attachment := manifest.Attachment{Disk: "disk-1", VM: vmPod()}.Pod()
		Expect(attachment.Spec.Containers[0].Image).To(Equal("registry/stemcell@sha256:00"))
	})

	It("is an attachment whose proof runs from the machine's image, and knows the disk", func() {
		attachment := withSidecar(manifest.Attachment{Disk: "disk-1", VM: runningPod(testVM())}.Pod(), corev1.ContainerStatus{})
		release := manifest.ReleaseContainer(attachment)
		Expect(release.Image).To(Equal("registry/stemcell@sha256:00"))
		Expect(release.Env).To(ContainElement(corev1.EnvVar{Name: "DISK", Value: "disk-1"}))
	})

	It("is up when its own container has started, whatever keeps the Pod from being ready", func() {
		status := corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
		Expect(manifest.HasBooted(withSidecar(runningPod(testVM()), status))).To(BeFalse())
		status.Started = new(true)
		pod := withSidecar(runningPod(testVM()), status)
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
		Expect(manifest.HasBooted(pod)).To(BeTrue())
		pod.Status.ContainerStatuses[1].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}
		Expect(manifest.HasBooted(pod)).To(BeFalse())
	})

	It("is restarted by its own container, and its restarts are that one's", func() {
		reboot := manifest.RebootPod(vmPod(), "d1")
		Expect(reboot.Spec.Containers[0].Env).To(ContainElement(corev1.EnvVar{Name: "CONTAINER", Value: "machine"}))
		Expect(manifest.OwnContainerStatus(vmPod()).RestartCount).To(Equal(int32(2)))
	})

	It("has the disks of its own container alone", func() {
		vm := testVM()
		vm.Recreate, vm.EphemeralClaim = true, &corev1.PersistentVolumeClaimSpec{}
		pod := manifest.PodFromTemplate(vm.PodTemplate(), "")
		Expect(manifest.DiskCIDs(withSidecar(pod, corev1.ContainerStatus{}).Spec)).To(BeEmpty())
	})

	DescribeTable("and that runs once is over when its own container is, as that ended", func(status int32) {
		flush := manifest.FlushPod(manifest.Attachment{Disk: "disk-1", VM: runningPod(testVM())}.Pod(), "d1")
		pod := withSidecar(flush, corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: status}}})
		pod.Status.Phase = corev1.PodRunning
		finished, succeeded := manifest.Outcome(pod)
		Expect(finished).To(BeTrue())
		Expect(succeeded).To(Equal(status == 0))
	},
		Entry("well", int32(0)),
		Entry("not well", int32(1)),
	)

	It("and that was evicted is over, whatever its containers were", func() {
		pod := withSidecar(manifest.RebootPod(runningPod(testVM()), "d1"), corev1.ContainerStatus{})
		pod.Status.Phase = corev1.PodFailed
		finished, succeeded := manifest.Outcome(pod)
		Expect(finished).To(BeTrue())
		Expect(succeeded).To(BeFalse())
	})
})
