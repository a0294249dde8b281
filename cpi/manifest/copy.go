package manifest

import (
	"path"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/node"
)

// ExitNoSpace is the exit status of a copy Pod if the data does not fit on the successor.
const ExitNoSpace = node.ExitNoSpace

// Successor returns the PVC to which update_disk copies the old disk, marked as an incomplete copy. It keeps the metadata that the
// director set on the old disk.
func (d Disk) Successor(old DiskPVC) DiskPVC {
	pvc := d.PVC()
	for _, pair := range []struct{ from, to map[string]string }{{old.Labels, pvc.Labels}, {old.Annotations, pvc.Annotations}} {
		for key, value := range pair.from {
			metadata := key == AnnotationMetadata || strings.HasPrefix(key, Prefix) && !IsReservedKey(key)
			if _, set := pair.to[key]; metadata && !set {
				pair.to[key] = value
			}
		}
	}
	if old.IsFormatted() {
		pvc.Annotations[AnnotationFormatted] = old.Annotations[AnnotationFormatted]
	}
	pvc.Labels[LabelCopy] = CopyIncomplete
	pvc.Annotations[AnnotationCopyOf] = old.Name
	return pvc
}

// Copy describes the copy of a detached disk to its successor.
type Copy struct {
	Old, New DiskPVC
	VM       VMPod    // a VM that provides the image
	Node     string   // the node to run on; if empty, any node that can run the image
	Avoid    []string // nodes to exclude if Node is empty
	Director string
}

// Pod returns the copy Pod. It runs once and is owned by the successor. It has the name of the old disk's attachment Pod, because
// only one of the two may exist at a time.
func (c Copy) Pod() CopyPod {
	meta := newObjectMeta(DiskPodName(c.Old.Name), c.Old.Namespace, c.Director, RoleCopy)
	meta.Labels[LabelDisk] = c.Old.Name
	meta.Annotations = map[string]string{AnnotationCopiedTo: c.New.Name}
	meta.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: c.New.Name, UID: c.New.UID}}
	pod := newHelperPod(c.VM.Pod, meta, c.container())
	if c.Node != "" {
		pod.Spec.Affinity = nodeAffinityTo(c.Node)
	} else {
		pod.Spec.Affinity = platformAffinity(c.VM.Pod)
		for _, name := range c.Avoid {
			pod.Spec.Affinity = avoidNode(pod.Spec.Affinity, name)
		}
	}
	addOwnerGate(pod)
	addPVCVolume(pod, c.Old, "old")
	addPVCVolume(pod, c.New, "volume")
	return CopyPod{pod}
}

// container returns the container of the copy Pod.
func (c Copy) container() corev1.Container {
	container := corev1.Container{
		Name:    copyContainer,
		Command: node.Copy(),
		Env: []corev1.EnvVar{
			{Name: "DISK", Value: c.New.Name},
			{Name: "SIZE_MIB", Value: c.New.Annotations[AnnotationSize]},
			{Name: "FILESYSTEM", Value: c.New.Annotations[AnnotationFilesystem]},
			{Name: "ATTACH"},
			{Name: "OLD", Value: c.Old.Name},
			{Name: "OLD_ATTACH"},
			{Name: "OLD_FORMATTED", Value: strconv.FormatBool(c.Old.IsFormatted())},
		},
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("100m"),
			corev1.ResourceMemory: mebibytes(64),
		}},
	}
	if c.New.IsPreallocated() {
		container.Env = append(container.Env, preallocateEnv)
	}
	return container
}

// addPVCVolume adds the PVC to the Pod and its first container: with volumeMode Block as the device /dev/NAME, with Filesystem
// mounted at /NAME.
func addPVCVolume(pod *corev1.Pod, pvc DiskPVC, name string) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: pvcVolume(pvc.Name)})
	container := &pod.Spec.Containers[0]
	if pvc.VolumeMode() == corev1.PersistentVolumeBlock {
		container.VolumeDevices = append(container.VolumeDevices, corev1.VolumeDevice{Name: name, DevicePath: path.Join("/dev", name)})
	} else {
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: path.Join("/", name)})
	}
}
