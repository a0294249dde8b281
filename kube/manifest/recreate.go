package manifest

import (
	"encoding/json"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const kindTemplate = "PodTemplate"

// Template says how the machine's Pod is to be, each time that it is made. The Pod belongs to it, and so
// does all that otherwise belongs to a machine's Pod.
func (vm VM) Template() *corev1.PodTemplate {
	meta := owned(vm.Name, vm.Namespace, vm.Director, RoleTemplate)
	meta.Labels[LabelVM] = vm.Name
	meta.Annotations = map[string]string{AnnotationDigest: vm.Digest}
	pod := vm.Pod()
	return &corev1.PodTemplate{ObjectMeta: meta, Template: corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations},
		Spec:       pod.Spec,
	}}
}

// Machine is the template's Pod. With a node it has to run there, cordoned or not: where its disks are
// attached.
func Machine(template *corev1.PodTemplate, node string) *corev1.Pod {
	again := template.Template.DeepCopy()
	pod := &corev1.Pod{ObjectMeta: again.ObjectMeta, Spec: again.Spec}
	pod.Name, pod.Namespace = template.Name, template.Namespace
	pod.OwnerReferences = []metav1.OwnerReference{belongsTo(template)}
	if node != "" {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
			Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
		})
		pod.Spec.Affinity = limit(pod.Spec.Affinity, onNode(node).NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms)
	}
	return pod
}

// Storage is the claim of the machine's own storage, which outlives the Pod.
func (vm VM) Storage(template *corev1.PodTemplate) *corev1.PersistentVolumeClaim {
	meta := owned(EphemeralClaim(vm.Name), vm.Namespace, vm.Director, RoleStorage)
	meta.Labels[LabelVM] = vm.Name
	meta.OwnerReferences = []metav1.OwnerReference{belongsTo(template)}
	return &corev1.PersistentVolumeClaim{ObjectMeta: meta, Spec: *vm.EphemeralClaim}
}

func belongsTo(template *corev1.PodTemplate) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: kindTemplate, Name: template.Name, UID: template.UID}
}

// Owner is what belongs together with the machine goes with: its Pod, or the PodTemplate that the Pod is
// made from.
func Owner(pod *corev1.Pod) metav1.OwnerReference {
	for _, owner := range pod.OwnerReferences {
		if owner.Kind == kindTemplate {
			return owner
		}
	}
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
}

// Recreated reports whether the machine, or the attachment's machine, is made again for each disk.
func Recreated(pod *corev1.Pod) bool { return Owner(pod).Kind == kindTemplate }

// Change is how a machine's PodTemplate becomes another.
type Change struct {
	Add       *corev1.PersistentVolumeClaim // a disk
	Remove    string                        // a disk's CID
	Addresses []string                      // of its first Pod
	Metadata  *Metadata                     // of the Pod
}

// Patch is the strategic merge patch that makes the change to the template, however often.
func (c Change) Patch() ([]byte, error) {
	template := map[string]any{}
	if c.Metadata != nil {
		template["metadata"] = c.Metadata
	}
	if c.Add != nil || c.Remove != "" {
		template["spec"] = c.disks()
	}
	patch := map[string]any{"template": template}
	if len(c.Addresses) > 0 {
		patch["metadata"] = map[string]any{"annotations": map[string]string{AnnotationAddresses: strings.Join(c.Addresses, ",")}}
	}
	return json.Marshal(patch)
}

// disks adds or removes the disk as a volume of the Pod: a Block claim is its device, a Filesystem claim
// its directory.
func (c Change) disks() map[string]any {
	container := map[string]any{"name": machineContainer}
	if c.Remove != "" {
		gone := func(key, value string) []any { return []any{map[string]string{"$patch": "delete", key: value}} }
		container["volumeDevices"] = gone("devicePath", DevicePath(c.Remove))
		container["volumeMounts"] = gone("mountPath", DevicePath(c.Remove))
		return map[string]any{"containers": []any{container}, "volumes": gone("name", c.Remove)}
	}
	if VolumeMode(c.Add) == corev1.PersistentVolumeBlock {
		container["volumeDevices"] = []corev1.VolumeDevice{{Name: c.Add.Name, DevicePath: DevicePath(c.Add.Name)}}
	} else {
		container["volumeMounts"] = []corev1.VolumeMount{{Name: c.Add.Name, MountPath: DevicePath(c.Add.Name)}}
	}
	return map[string]any{"containers": []any{container}, "volumes": []corev1.Volume{{
		Name: c.Add.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c.Add.Name},
		},
	}}}
}

// Disks are the CIDs of the disks that are volumes of such a machine's Pod.
func Disks(pod corev1.PodSpec) []string {
	var disks []string
	machine := named(pod, machineContainer)
	for _, mount := range machine.VolumeMounts {
		if path.Dir(mount.MountPath) == machineDevices {
			disks = append(disks, mount.Name)
		}
	}
	for _, device := range machine.VolumeDevices {
		disks = append(disks, device.Name)
	}
	slices.Sort(disks)
	return disks
}
