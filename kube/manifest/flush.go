package manifest

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// newOwnedHelperPod is a Pod that runs once on the node of another, from its image, and belongs to it.
func newOwnedHelperPod(name, role, director string, target *corev1.Pod, container corev1.Container) *corev1.Pod {
	meta := newObjectMeta(name, target.Namespace, director, role)
	meta.OwnerReferences = []metav1.OwnerReference{OwnerReference(target)}
	container.Name = role
	container.Resources.Requests = helperRequests()
	pod := newHelperPod(target, meta, container)
	pod.Spec.Affinity = nodeAffinityTo(target.Spec.NodeName)
	return pod
}

// helperRequests is what helpers ask for. Asking for little, and staying below it, makes an attachment among the last to be evicted: it has
// 4 MiB while it holds a disk, and 6 MiB more while that is proven free. The kernel would kill what asks for so little first; see
// outlast in node/lib/attachment.sh.
func helperRequests() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: mebibytes(32)}
}

// FlushPodName is the name of the Pod that writes out what is in memory for this disk.
func FlushPodName(disk string) string { return disk + "-flush" }

// FlushPod is a Pod that writes out all that the filesystems of an attachment's node hold in memory: sync(2)
// knows no namespaces.
func FlushPod(attachment *corev1.Pod, director string) *corev1.Pod {
	return newOwnedHelperPod(FlushPodName(attachment.Labels[LabelDisk]), RoleFlush, director, attachment,
		corev1.Container{Command: []string{"/bin/sync"}})
}
