package manifest

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The types in this file distinguish Pods and PVCs by their role in BOSH. Their methods return what the CPI recorded in labels and
// annotations (names.go), or "" if there is no record. The zero value is an object that does not exist: only its embedded
// object may be read.

// A VMPod is the Pod of a VM. Its name is the VM's CID.
type VMPod struct{ *corev1.Pod }

// HasRecreateStrategy reports whether the Pod is recreated for each disk, from a PodTemplate.
func (vm VMPod) HasRecreateStrategy() bool { return hasRecreateStrategy(vm.Pod) }

// OwnerReference returns the owner of the VM's objects: its Pod, or for a VM with disk_strategy: recreate its PodTemplate.
func (vm VMPod) OwnerReference() metav1.OwnerReference { return ownerReference(vm.Pod) }

// Template returns the PodTemplate of a VM with disk_strategy: recreate with only its name and UID, and nil for the Pod of any other VM.
func (vm VMPod) Template() *corev1.PodTemplate {
	if !vm.HasRecreateStrategy() {
		return nil
	}
	return &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Name: vm.Name, UID: vm.OwnerReference().UID}}
}

// DiskCIDs returns the sorted CIDs of the disks that are volumes of the Pod of a VM with disk_strategy: recreate.
func (vm VMPod) DiskCIDs() []string { return DiskCIDs(vm.Spec) }

// CanMountDevices reports whether the VM can mount block devices. The device cgroup of an unprivileged container denies opening them, and
// the kernel mounts no filesystem on a device in a user namespace.
func (vm VMPod) CanMountDevices() bool {
	security := OwnContainer(vm.Pod).SecurityContext
	privileged := security != nil && security.Privileged != nil && *security.Privileged
	return privileged && (vm.Spec.HostUsers == nil || *vm.Spec.HostUsers)
}

// Deployment returns the name of the VM's deployment, from set_vm_metadata.
func (vm VMPod) Deployment() string { return vm.Annotations[AnnotationDeployment] }

// Describe returns the VM's CID and, after set_vm_metadata, its instance: "agent-1 (web/0 of deployment cf)".
func (vm VMPod) Describe() string {
	group, index := vm.Annotations[AnnotationVMGroup], vm.Annotations[AnnotationVMIndex]
	if group == "" || index == "" {
		return vm.Name
	}
	return vm.Name + " (" + group + "/" + index + " of deployment " + vm.Deployment() + ")"
}

// HasMetadata reports whether the director has set the VM's metadata.
func (vm VMPod) HasMetadata() bool { return HasMetadata(vm.Annotations) }

// HasBooted reports whether the VM has booted: the CPI's container is running and passed its startup probe. The Pod's condition
// Ready is not suitable, because it also depends on the VM's jobs (readiness_probe), on injected containers, and on load balancers
// (readiness gates).
func (vm VMPod) HasBooted() bool {
	status := OwnContainerStatus(vm.Pod)
	return status.State.Running != nil && status.Started != nil && *status.Started
}

// State describes the state of the Pod in messages: "being deleted", or its phase.
func (vm VMPod) State() string {
	if vm.DeletionTimestamp != nil {
		return "being deleted"
	}
	return string(vm.Status.Phase)
}

// VMPods returns the VM Pods among the Pods.
func VMPods(pods []*corev1.Pod) (vmPods []VMPod) {
	for _, pod := range pods {
		if HasRole(pod, RoleVM) {
			vmPods = append(vmPods, VMPod{pod})
		}
	}
	return vmPods
}

// FindVMPod returns the Pod of this name, or a zero Pod if there is none.
func FindVMPod(pods []*corev1.Pod, vmCID string) VMPod { return VMPod{findPod(pods, vmCID)} }

func findPod(pods []*corev1.Pod, name string) *corev1.Pod {
	for _, pod := range pods {
		if pod.Name == name {
			return pod
		}
	}
	return nil
}

// An AttachmentPod attaches a disk to a VM while it runs.
type AttachmentPod struct{ *corev1.Pod }

// Disk returns the CID of the disk.
func (a AttachmentPod) Disk() string { return DiskOf(a) }

// VM returns the CID of the VM.
func (a AttachmentPod) VM() string { return VMOf(a) }

// HasRecreateStrategy reports whether the Pod of the VM is recreated for each disk.
func (a AttachmentPod) HasRecreateStrategy() bool { return hasRecreateStrategy(a.Pod) }

// IsDirectory reports whether the disk is a directory in the VM: a Filesystem volume of the Pod of a VM with disk_strategy: recreate.
func (a AttachmentPod) IsDirectory() bool {
	return a.HasRecreateStrategy() && len(OwnContainer(a.Pod).VolumeDevices) == 0
}

// IsReattached reports whether the VM already had the disk: see AnnotationReattached.
func (a AttachmentPod) IsReattached() bool {
	return a.Annotations[AnnotationReattached] == strconv.FormatBool(true)
}

// OwnerRecord returns the owner record of the disk while this Pod attaches it.
func (a AttachmentPod) OwnerRecord() DiskOwner { return DiskOwner{VM: a.VM(), Pod: a.UID} }

// OwnerReference returns a reference to the Pod's owner: the VM Pod, or the PodTemplate of a VM with disk_strategy: recreate.
func (a AttachmentPod) OwnerReference() corev1.ObjectReference {
	if len(a.OwnerReferences) == 0 {
		return corev1.ObjectReference{}
	}
	owner := a.OwnerReferences[0]
	return corev1.ObjectReference{APIVersion: owner.APIVersion, Kind: owner.Kind, Namespace: a.Namespace, Name: owner.Name, UID: owner.UID}
}

// AttachmentPods returns the attachment Pods among the Pods.
func AttachmentPods(pods []*corev1.Pod) (attachments []AttachmentPod) {
	for _, pod := range pods {
		if HasRole(pod, RoleAttachment) {
			attachments = append(attachments, AttachmentPod{pod})
		}
	}
	return attachments
}

// FindAttachment returns the attachment Pod of the disk, or a zero Pod if there is none.
func FindAttachment(pods []*corev1.Pod, diskCID string) AttachmentPod {
	return AttachmentPod{findPod(pods, AttachmentName(diskCID))}
}

// IsGated reports whether the Pod has OwnerGate, and so waits to become the owner of its disk.
func (a AttachmentPod) IsGated() bool { return hasOwnerGate(a.Pod) }

// IsGated reports whether the Pod has OwnerGate, and so waits until a call checks that the VM has its disks.
func (vm VMPod) IsGated() bool { return hasOwnerGate(vm.Pod) }

func hasOwnerGate(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.SchedulingGates, func(gate corev1.PodSchedulingGate) bool { return gate.Name == OwnerGate })
}

// A HelperPod runs a program of the CPI once.
type HelperPod struct{ *corev1.Pod }

// Finished reports whether the Pod's program has finished, and whether it succeeded. An injected container may keep the Pod itself
// running.
func (h HelperPod) Finished() (finished, succeeded bool) {
	if terminated := OwnContainerStatus(h.Pod).State.Terminated; terminated != nil {
		return true, terminated.ExitCode == 0
	}
	succeeded = h.Status.Phase == corev1.PodSucceeded
	return succeeded || h.Status.Phase == corev1.PodFailed, succeeded
}
