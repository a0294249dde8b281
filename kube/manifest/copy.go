package manifest

import (
	"path"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/kube/manifest/node"
)

// NoRoom is the status with which a copy ends whose data does not fit.
const NoRoom = node.NoRoom

// Successor is the claim of a disk that is to take the old one's place. It carries the metadata that the
// director has given the old one.
func (d Disk) Successor(old *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	claim := d.Claim()
	for _, each := range []struct{ from, to map[string]string }{{old.Labels, claim.Labels}, {old.Annotations, claim.Annotations}} {
		for key, value := range each.from {
			metadata := key == AnnotationMetadata || strings.HasPrefix(key, Prefix) && !Reserved(key)
			if _, given := each.to[key]; metadata && !given {
				each.to[key] = value
			}
		}
	}
	if Formatted(old) && !d.Bind {
		claim.Annotations[AnnotationFormatted] = old.Annotations[AnnotationFormatted]
	}
	claim.Labels[LabelCopy] = CopyUnproven
	claim.Annotations[AnnotationCopyOf] = old.Name
	return claim
}

// Copy copies a disk that is attached to no VM to its successor.
type Copy struct {
	Old, New *corev1.PersistentVolumeClaim
	Machine  *corev1.Pod // a VM from whose image the copy runs
	Node     string      // where it has to run; anywhere that can run the image when empty
	Director string
}

// Pod is the copy. It runs once. Its name is that of the old disk's attachment, so that there is never
// one beside the other, and it belongs to the successor.
func (c Copy) Pod() *corev1.Pod {
	meta := owned(AttachmentName(c.Old.Name), c.Old.Namespace, c.Director, RoleCopy)
	meta.Labels[LabelDisk] = c.Old.Name
	meta.Annotations = map[string]string{AnnotationCopiedTo: c.New.Name}
	meta.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: c.New.Name, UID: c.New.UID}}
	pod := beside(c.Machine, meta, c.container())
	if c.Node != "" {
		pod.Spec.Affinity = onNode(c.Node)
	} else {
		pod.Spec.Affinity = alike(c.Machine)
	}
	gate(pod)
	use(pod, c.Old, "old")
	use(pod, c.New, "volume")
	return pod
}

func (c Copy) container() corev1.Container {
	container := corev1.Container{
		Name:    copyContainer,
		Command: node.Copy(),
		Env: []corev1.EnvVar{
			{Name: "DISK", Value: c.New.Name},
			{Name: "SIZE_MIB", Value: c.New.Annotations[AnnotationSize]},
			{Name: "FILESYSTEM", Value: c.New.Annotations[AnnotationFilesystem]},
			{Name: "ATTACH", Value: c.New.Annotations[AnnotationAttach]},
			{Name: "OLD", Value: c.Old.Name},
			{Name: "OLD_ATTACH", Value: c.Old.Annotations[AnnotationAttach]},
			{Name: "OLD_FORMATTED", Value: strconv.FormatBool(Formatted(c.Old))},
		},
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("100m"),
			corev1.ResourceMemory: mebibytes(64),
		}},
	}
	if IsReserved(c.New) {
		container.Env = append(container.Env, reserve)
	}
	return container
}

// use gives the claim to the Pod's container: a Block claim as the device /dev/NAME, a Filesystem claim
// mounted at /NAME.
func use(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim, name string) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name},
	}})
	container := &pod.Spec.Containers[0]
	if VolumeMode(claim) == corev1.PersistentVolumeBlock {
		container.VolumeDevices = append(container.VolumeDevices, corev1.VolumeDevice{Name: name, DevicePath: path.Join("/dev", name)})
	} else {
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: path.Join("/", name)})
	}
}
