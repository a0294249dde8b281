package manifest_test

import (
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/cpi/node/api"
)

// withSidecar returns the Pod with an additional first container, as the webhooks of some service meshes inject it, and with the
// kubelet's status of both containers, sorted by name.
func withSidecar(pod *corev1.Pod, ownStatus corev1.ContainerStatus) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Spec.Containers = slices.Insert(pod.Spec.Containers, 0, corev1.Container{
		Name: "a-proxy", Image: "registry/proxy", VolumeMounts: []corev1.VolumeMount{{Name: "token", MountPath: "/dev/bosh/none"}},
	})
	ownStatus.Name = manifest.OwnContainerName(pod)
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "a-proxy", ContainerID: "containerd://proxy", RestartCount: 7, State: running}, ownStatus,
	}
	return pod
}

var _ = Describe("A Pod with an injected first container", func() {
	vmPod := func() manifest.VMPod {
		return manifest.VMPod{Pod: withSidecar(runningPod(testVM()).Pod, corev1.ContainerStatus{ContainerID: "containerd://vm", RestartCount: 2})}
	}

	It("has attachments that run from the VM's image", func() {
		attachment := manifest.Attachment{Disk: "disk-1", VM: vmPod()}.Pod()
		Expect(attachment.Spec.Containers[0].Image).To(Equal("registry/stemcell@sha256:00"))
	})

	It("has exclusivity checks with the mounts of its own container", func() {
		attachment := manifest.Attachment{Disk: "disk-1", VM: runningPod(testVM())}.Pod()
		attachment.Pod = withSidecar(attachment.Pod, corev1.ContainerStatus{})
		check := manifest.ExclusivityCheckContainer(attachment, nodeImage)
		Expect(check.VolumeMounts).To(ContainElement(HaveField("Name", "devices")))
		Expect(check.VolumeMounts).NotTo(ContainElement(HaveField("Name", "token")))
	})

	It("is booted when its own container is started, even if the Pod is not ready", func() {
		status := corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
		Expect(manifest.VMPod{Pod: withSidecar(runningPod(testVM()).Pod, status)}.HasBooted()).To(BeFalse())
		status.Started = new(true)
		pod := manifest.VMPod{Pod: withSidecar(runningPod(testVM()).Pod, status)}
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
		Expect(pod.HasBooted()).To(BeTrue())
		pod.Status.ContainerStatuses[1].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}
		Expect(pod.HasBooted()).To(BeFalse())
	})

	It("is rebooted by the ID of its own container, and counts the restarts of that container", func() {
		reboot := manifest.RebootPod(vmPod(), "d1", nodeImage)
		Expect(reboot.Spec.Containers[0].Command).To(HaveExactElements(
			api.InImage, "vm", "reboot", "--vm", "bosh/agent-a1", "--container", "vm"))
		Expect(manifest.OwnContainerStatus(vmPod().Pod).RestartCount).To(Equal(int32(2)))
	})

	It("has only the disks of its own container", func() {
		vm := testVM()
		vm.Recreate, vm.EphemeralClaim = true, &corev1.PersistentVolumeClaimSpec{}
		pod := manifest.PodFromTemplate(vm.PodTemplate(), "")
		Expect(manifest.DiskCIDs(withSidecar(pod.Pod, corev1.ContainerStatus{}).Spec)).To(BeEmpty())
	})

	DescribeTable("has the outcome of its own container if it is a helper Pod:", func(status int32) {
		flush := manifest.FlushPod(manifest.Attachment{Disk: "disk-1", VM: runningPod(testVM())}.Pod(), "d1", nodeImage)
		terminated := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: status}}
		pod := withSidecar(flush.Pod, corev1.ContainerStatus{State: terminated})
		pod.Status.Phase = corev1.PodRunning
		finished, succeeded := manifest.HelperPod{Pod: pod}.Finished()
		Expect(finished).To(BeTrue())
		Expect(succeeded).To(Equal(status == 0))
	},
		Entry("success", int32(0)),
		Entry("failure", int32(1)),
	)

	It("counts as failed if it was evicted, regardless of the state of its containers", func() {
		pod := withSidecar(manifest.RebootPod(runningPod(testVM()), "d1", nodeImage).Pod, corev1.ContainerStatus{})
		pod.Status.Phase = corev1.PodFailed
		finished, succeeded := manifest.HelperPod{Pod: pod}.Finished()
		Expect(finished).To(BeTrue())
		Expect(succeeded).To(BeFalse())
	})
})
