package manifest

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// newOwnedHelperPod returns a helper Pod that runs once on the target Pod's node, from the same image. The target Pod owns it.
func newOwnedHelperPod(name, role, director string, target *corev1.Pod, container corev1.Container) HelperPod {
	meta := newObjectMeta(name, target.Namespace, director, role)
	meta.OwnerReferences = []metav1.OwnerReference{ownerReference(target)}
	container.Name = role
	container.Resources.Requests = helperRequests()
	pod := newHelperPod(target, meta, container)
	pod.Spec.Affinity = nodeAffinityTo(target.Spec.NodeName)
	return HelperPod{pod}
}

// helperRequests returns the resource requests of helper and attachment containers. An attachment uses 4 MiB of memory, and 6 MiB
// more during an exclusivity check: because it stays below its request, it is among the last Pods to be evicted. A small request
// also makes the kernel's OOM killer prefer the container; node/lib/attachment.sh prevents that.
func helperRequests() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: mebibytes(32)}
}

// FlushPodName returns the name of the flush Pod of this disk.
func FlushPodName(disk string) string { return disk + "-flush" }

// FlushPod returns the Pod that writes all cached data of the attachment's node to its disks before a snapshot: sync(2) is not
// limited to a mount namespace.
func FlushPod(attachment AttachmentPod, director string) HelperPod {
	pod := newOwnedHelperPod(FlushPodName(attachment.Disk()), RoleFlush, director, attachment.Pod,
		corev1.Container{Command: []string{"/bin/sync"}})
	pod.Spec.PriorityClassName = "" // not AttachmentPriorityClass, with which it would preempt Pods on a full node
	return pod
}
