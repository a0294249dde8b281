package manifest

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/node/api"
)

// newOwnedHelperPod returns a helper Pod that runs bosh-node once on the target Pod's node, from its own image. The target Pod owns it.
func newOwnedHelperPod(name, role, director, nodeImage string, target *corev1.Pod, arguments []string) HelperPod {
	meta := newObjectMeta(name, target.Namespace, director, role)
	meta.OwnerReferences = []metav1.OwnerReference{ownerReference(target)}
	pod := newHelperPod(target, nodeImage, meta, corev1.Container{
		Name: role, Command: inImage(arguments...), Resources: corev1.ResourceRequirements{Requests: helperRequests()},
	})
	pod.Spec.Affinity = nodeAffinityTo(target.Spec.NodeName)
	return HelperPod{pod}
}

// helperRequests returns the resource requests of helper and attachment containers. An attachment uses 4 MiB of memory, and 6 MiB
// more during an exclusivity check: because it stays below its request, it is among the last Pods to be evicted. A small request
// also makes the kernel's OOM killer prefer the container; node/attach prevents that.
func helperRequests() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: mebibytes(32)}
}

// FlushPodName returns the name of the flush Pod of this disk.
func FlushPodName(disk string) string { return disk + "-flush" }

// FlushPod returns the Pod that writes all cached data of the attachment's node to its disks before a snapshot: sync(2) is not
// limited to a mount namespace.
func FlushPod(attachment AttachmentPod, director, nodeImage string) HelperPod {
	pod := newOwnedHelperPod(FlushPodName(attachment.Disk()), RoleFlush, director, nodeImage, attachment.Pod, api.Flush())
	pod.Spec.PriorityClassName = "" // not AttachmentPriorityClass, with which it would preempt Pods on a full node
	return pod
}
