package preflight

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"bosh-kubernetes-cpi/cpi/manifest"
)

var _ = Describe("The comparison of a Pod with the admitted Pod", func() {
	newAttachmentPod := func() *corev1.Pod {
		vmPod := manifest.VM{Name: "agent-1", Namespace: namespace, Image: image}.Pod()
		return manifest.Attachment{Disk: "disk-1", Mode: corev1.PersistentVolumeFilesystem, VM: vmPod}.Pod().Pod
	}
	container := manifest.OwnContainer

	DescribeTable("reports what the cluster changed or removed:", func(change func(*corev1.Pod), expected string) {
		sent := newAttachmentPod()
		admitted := sent.DeepCopy()
		change(admitted)
		Expect(admissionChanges("attachment Pods", sent, admitted)).To(ConsistOf(HavePrefix(expected + ": the ")))
	},
		Entry("the grace period", func(pod *corev1.Pod) { pod.Spec.TerminationGracePeriodSeconds = new(int64(60)) },
			"changed terminationGracePeriodSeconds of attachment Pods from 315360000 to 60"),
		Entry("the PID namespace", func(pod *corev1.Pod) { pod.Spec.HostPID = false }, "removed hostPID of attachment Pods"),
		Entry("the PriorityClass", func(pod *corev1.Pod) { pod.Spec.PriorityClassName = "low" },
			"changed priorityClassName of attachment Pods from system-node-critical to low"),
		Entry("privileges", func(pod *corev1.Pod) { container(pod).SecurityContext.Privileged = new(false) },
			"changed securityContext.privileged of attachment Pods from true to false"),
		Entry("the security context", func(pod *corev1.Pod) { container(pod).SecurityContext = nil }, "removed securityContext of attachment Pods"),
		Entry("a volume", func(pod *corev1.Pod) { pod.Spec.Volumes = pod.Spec.Volumes[1:] }, "removed volumes[disk] of attachment Pods"),
		Entry("the source of a volume", func(pod *corev1.Pod) { pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "other" },
			"changed volumes[disk].persistentVolumeClaim.claimName of attachment Pods from disk-1 to other"),
		Entry("a mount", func(pod *corev1.Pod) { container(pod).VolumeMounts = container(pod).VolumeMounts[1:] },
			"removed volumeMounts[/devices] of attachment Pods"),
	)

	It("reports a removed device and a removed capability", func() {
		sent := newAttachmentPod()
		own := container(sent)
		own.VolumeDevices = []corev1.VolumeDevice{{Name: "disk", DevicePath: "/dev/volume"}}
		own.SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN", "SYS_NICE"}}}
		admitted := sent.DeepCopy()
		container(admitted).VolumeDevices = nil
		container(admitted).SecurityContext.Capabilities.Add = []corev1.Capability{"SYS_NICE"}
		Expect(admissionChanges("VM Pods", sent, admitted)).To(ConsistOf(
			HavePrefix("removed securityContext.capabilities.add[SYS_ADMIN] of VM Pods: "), HavePrefix("removed volumeDevices[/dev/volume] of VM Pods: ")))
	})

	It("ignores additions, and changes of other fields", func() {
		sent := newAttachmentPod()
		admitted := sent.DeepCopy()
		admitted.Labels["team"] = "bosh"
		own := container(admitted)
		own.Image = "mirror.example.org/" + own.Image
		for _, volume := range admitted.Spec.Volumes {
			if image := volume.Image; image != nil {
				image.Reference, image.PullPolicy = "mirror.example.org/"+image.Reference, corev1.PullAlways
			}
		}
		own.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
		own.SecurityContext.Capabilities = &corev1.Capabilities{Drop: []corev1.Capability{"NET_RAW"}}
		own.VolumeMounts = append([]corev1.VolumeMount{{Name: "kube-api-access", MountPath: "/var/run/secrets"}}, own.VolumeMounts...)
		admitted.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: new(int64(1))}
		admitted.Spec.Volumes = append([]corev1.Volume{{Name: "kube-api-access"}}, admitted.Spec.Volumes...)
		admitted.Spec.Tolerations = append(admitted.Spec.Tolerations, corev1.Toleration{Key: "added"})
		admitted.Spec.Containers = append([]corev1.Container{{Name: "a-proxy"}}, admitted.Spec.Containers...)
		admitted.Spec.InitContainers = []corev1.Container{{Name: "init"}}
		Expect(admissionChanges("attachment Pods", sent, admitted)).To(BeEmpty())
	})

	It("ignores a default PriorityClass of the cluster", func() {
		sent := newAttachmentPod()
		sent.Spec.PriorityClassName = ""
		admitted := sent.DeepCopy()
		admitted.Spec.PriorityClassName = "default"
		Expect(admissionChanges("VM Pods", sent, admitted)).To(BeEmpty())
	})
})
