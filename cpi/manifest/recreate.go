package manifest

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const podTemplateKind = "PodTemplate"

// PodTemplate returns the template for each Pod of a VM with disk_strategy: recreate. It owns the Pod, and all objects that the Pod of
// another VM would own.
func (vm VM) PodTemplate() *corev1.PodTemplate {
	meta := newObjectMeta(vm.Name, vm.Namespace, vm.Director, RoleVMTemplate)
	meta.Labels[LabelVM] = vm.Name
	meta.Annotations = map[string]string{AnnotationDigest: vm.Digest}
	pod := vm.Pod()
	return &corev1.PodTemplate{ObjectMeta: meta, Template: corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations},
		Spec:       pod.Spec,
	}}
}

// PodFromTemplate returns the VM Pod of the template. If node is not empty, the Pod must run on this node, even if the node is
// cordoned: the VM's disks are attached there. A Pod with disks has OwnerGate.
func PodFromTemplate(template *corev1.PodTemplate, node string) VMPod {
	podTemplate := template.Template.DeepCopy()
	pod := &corev1.Pod{ObjectMeta: podTemplate.ObjectMeta, Spec: podTemplate.Spec}
	pod.Name, pod.Namespace = template.Name, template.Namespace
	pod.OwnerReferences = []metav1.OwnerReference{templateOwner(template)}
	if len(DiskCIDs(pod.Spec)) > 0 {
		addOwnerGate(pod)
	}
	if node != "" {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
			Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
		})
		pod.Spec.Affinity = addRequiredTerms(pod.Spec.Affinity, nodeNameTerms(corev1.NodeSelectorOpIn, node))
	}
	return VMPod{pod}
}

// EphemeralPVC returns the PVC of the ephemeral disk of a VM with disk_strategy: recreate, which outlives the Pod.
func (vm VM) EphemeralPVC(template *corev1.PodTemplate) *corev1.PersistentVolumeClaim {
	meta := newObjectMeta(EphemeralPVCName(vm.Name), vm.Namespace, vm.Director, RoleEphemeralDisk)
	meta.Labels[LabelVM] = vm.Name
	meta.OwnerReferences = []metav1.OwnerReference{templateOwner(template)}
	return &corev1.PersistentVolumeClaim{ObjectMeta: meta, Spec: *vm.EphemeralClaim}
}

func templateOwner(template *corev1.PodTemplate) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: podTemplateKind, Name: template.Name, UID: template.UID}
}

// ownerReference returns the owner of the objects of a VM with this VM Pod or attachment Pod: its VM Pod, or for a VM with
// disk_strategy: recreate its PodTemplate.
func ownerReference(pod *corev1.Pod) metav1.OwnerReference {
	for _, owner := range pod.OwnerReferences {
		if owner.Kind == podTemplateKind {
			return owner
		}
	}
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
}

// hasRecreateStrategy reports whether the Pod is the VM Pod or an attachment Pod of a VM with disk_strategy: recreate.
func hasRecreateStrategy(pod *corev1.Pod) bool { return ownerReference(pod).Kind == podTemplateKind }

// TemplateChange is a change of the PodTemplate of a VM with disk_strategy: recreate. Empty fields change nothing.
type TemplateChange struct {
	AddDisk    DiskPVC
	RemoveDisk string    // the disk's CID
	Addresses  []string  // see AnnotationFirstPodAddresses
	Metadata   *Metadata // metadata of the Pod
}

// Patch returns the strategic merge patch that makes the change, if the template is unchanged since it was read. It makes a new version
// of the template even if the template already has the result, so that delayed requests for earlier versions fail.
func (c TemplateChange) Patch(template *corev1.PodTemplate) []byte {
	pod := map[string]any{}
	if c.Metadata != nil {
		pod["metadata"] = c.Metadata
	}
	if c.AddDisk.PVC != nil || c.RemoveDisk != "" {
		pod["spec"] = c.diskPatch()
	}
	annotations := map[string]string{AnnotationPreviousVersion: template.ResourceVersion}
	if len(c.Addresses) > 0 {
		annotations[AnnotationFirstPodAddresses] = strings.Join(c.Addresses, ",")
	}
	return encode(map[string]any{
		"metadata": map[string]any{"uid": template.UID, "resourceVersion": template.ResourceVersion, "annotations": annotations},
		"template": pod,
	})
}

// diskPatch adds or removes the disk as a volume of the Pod: as a device with volumeMode Block, as a mount with Filesystem.
func (c TemplateChange) diskPatch() map[string]any {
	container := map[string]any{"name": VMContainer}
	if c.RemoveDisk != "" {
		deletion := func(key, value string) []any { return []any{map[string]string{"$patch": "delete", key: value}} }
		container["volumeDevices"] = deletion("devicePath", DevicePath(c.RemoveDisk))
		container["volumeMounts"] = deletion("mountPath", DevicePath(c.RemoveDisk))
		return map[string]any{"containers": []any{container}, "volumes": deletion("name", c.RemoveDisk)}
	}
	if c.AddDisk.VolumeMode() == corev1.PersistentVolumeBlock {
		container["volumeDevices"] = []corev1.VolumeDevice{{Name: c.AddDisk.Name, DevicePath: DevicePath(c.AddDisk.Name)}}
	} else {
		container["volumeMounts"] = []corev1.VolumeMount{{Name: c.AddDisk.Name, MountPath: DevicePath(c.AddDisk.Name)}}
	}
	volume := corev1.Volume{Name: c.AddDisk.Name, VolumeSource: pvcVolume(c.AddDisk.Name)}
	return map[string]any{"containers": []any{container}, "volumes": []corev1.Volume{volume}}
}

// DiskCIDs returns the sorted CIDs of the disks that are volumes of the Pod of a VM with disk_strategy: recreate.
func DiskCIDs(pod corev1.PodSpec) []string {
	var disks []string
	container := containerByName(pod, VMContainer)
	for _, mount := range container.VolumeMounts {
		if path.Dir(mount.MountPath) == vmDevicesPath {
			disks = append(disks, mount.Name)
		}
	}
	for _, device := range container.VolumeDevices {
		disks = append(disks, device.Name)
	}
	slices.Sort(disks)
	return disks
}
