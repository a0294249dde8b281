package manifest

import (
	"cmp"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/node/api"
)

// attachmentGracePeriod is the termination grace period of an attachment Pod, longer than the lifetime of any node. The Pod exits
// as soon as nothing uses its device. If the kubelet killed the Pod earlier, it would also unmap the volume, although the VM may
// still have its filesystem mounted.
const attachmentGracePeriod = 10 * 365 * 24 * 60 * 60 // seconds

// AttachmentPriorityClass is the default PriorityClass of attachment Pods. The kubelet never evicts or preempts a Pod of this class,
// which every cluster has, and ends it after VM Pods if the node shuts down. It would kill another attachment Pod, of any priority
// below system-cluster-critical, within a second, while the VM has its filesystem mounted.
const AttachmentPriorityClass = "system-node-critical"

// Attachment attaches one disk to one running VM.
type Attachment struct {
	Disk        string // the disk's CID
	SizeMiB     int64
	Filesystem  string // created on a blank disk: ext4 or xfs
	Formatted   bool   // a VM had the disk before: see AnnotationFormatted
	Preallocate bool   // see AnnotationPreallocate
	Mode        corev1.PersistentVolumeMode
	Reattached  bool // the VM already has the disk, see AnnotationReattached
	VM          VMPod
	Director    string
	NodeImage   string // of bosh-node, with a digest
	// PriorityClass is the PriorityClass of the attachment Pod. The default is AttachmentPriorityClass.
	PriorityClass string
}

// Pod returns the attachment Pod. It runs on the VM's node from the VM's image, has no address of its own, and is owned by the VM
// Pod, or by the PodTemplate of a VM with disk_strategy: recreate.
//
// Its one container prepares the device and publishes its device node to the VM. When the Pod is deleted, the container exits
// once the device is free.
//
// The Pod is ready when the VM can use the disk: a postStart hook waits for the device node. A kubelet that starts again during the hook
// reports too early that the Pod is ready; then the agent does not find the disk, and the director's next attempt succeeds. Where more
// depends on it, a startup probe waits, which that kubelet repeats, and which takes up to a second longer: when the first attachment is
// ready, the CPI records that the disk is formatted, and no attachment that starts after that accepts a blank volume. When the attachment
// of a VM with disk_strategy: recreate is ready, the VM Pod starts.
//
// Until it knows the probe, a restarted kubelet may still report that the Pod is ready (SyncPod in pkg/kubelet/kubelet.go). Therefore the
// program reads only once, when it starts, whether the disk is recorded as formatted.
func (a Attachment) Pod() AttachmentPod {
	meta := newObjectMeta(AttachmentName(a.Disk), a.VM.Namespace, a.Director, RoleAttachment)
	meta.Labels[LabelVM] = a.VM.Name
	meta.Labels[LabelDisk] = a.Disk
	// See AttachmentPDB. The attachment of a VM with disk_strategy: recreate is not deleted with the VM Pod: with a PodDisruptionBudget it
	// would block the drain of its node.
	if group := a.VM.Labels[LabelGroup]; group != "" && !a.VM.HasRecreateStrategy() {
		meta.Labels[LabelGroup] = group
	}
	meta.Annotations = map[string]string{}
	if a.Reattached {
		meta.Annotations[AnnotationReattached] = strconv.FormatBool(true)
	}
	meta.OwnerReferences = []metav1.OwnerReference{a.VM.OwnerReference()}
	pod := newHelperPod(a.VM.Pod, OwnContainer(a.VM.Pod).Image, meta, a.container())
	devices := devicesVolume(a.VM.Namespace, a.VM.Name)
	if a.VM.HasRecreateStrategy() {
		devices = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	}
	pod.Spec.Volumes = []corev1.Volume{{Name: "disk", VolumeSource: pvcVolume(a.Disk)}, {Name: "devices", VolumeSource: devices}}
	if a.hasMarkersVolume() {
		markers := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "markers", VolumeSource: markers})
	}
	if a.recordsFormatted() {
		mountRecord(pod, attachmentRecordPath, "formatted", AnnotationFormatted)
	}
	if a.isIdle() {
		pod.Spec.Containers[0].Image = a.NodeImage
	} else {
		mountNodeImage(pod, a.NodeImage)
	}
	pod.Spec.PriorityClassName = cmp.Or(a.PriorityClass, AttachmentPriorityClass)
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	pod.Spec.TerminationGracePeriodSeconds = new(int64(attachmentGracePeriod))
	addOwnerGate(pod)
	pod.Spec.Affinity = a.affinity()
	return AttachmentPod{pod}
}

// affinity requires the node of the VM, and the VM Pod on it. With the node alone, the scheduler would preempt Pods on a full node, such
// as another VM or even this one. It preempts no Pod for a Pod with an affinity to a Pod of a lower priority (SelectVictimsOnNode in
// pkg/scheduler/framework/plugins/defaultpreemption). The API server rejects preemptionPolicy: Never for AttachmentPriorityClass.
//
// The attachments of a VM Pod that is recreated are created first, on the node of the previous VM Pod: they cannot require it.
func (a Attachment) affinity() *corev1.Affinity {
	toVM := podAffinityTo(a.VM.Pod)
	if a.VM.Spec.NodeName == "" {
		return toVM
	}
	affinity := nodeAffinityTo(a.VM.Spec.NodeName)
	if a.VM.UID != "" {
		affinity.PodAffinity = toVM.PodAffinity
	}
	return affinity
}

// hasMarkersVolume reports whether the attachment Pod has a volume for marker files, which record that the VM had the disk. They survive a
// restart of the node.
func (a Attachment) hasMarkersVolume() bool { return !a.VM.HasRecreateStrategy() }

// attachmentRecordPath is the directory with the record of AnnotationFormatted.
const attachmentRecordPath = "/pod"

// recordsFormatted reports whether the program reads from a record that the VM has the disk: its arguments do not change when it starts
// again, and its node may be another one with the same name then, with a blank volume.
func (a Attachment) recordsFormatted() bool { return !a.Formatted && !a.isIdle() }

// isIdle reports whether the VM Pod already has the disk as a volume.
func (a Attachment) isIdle() bool { return slices.Contains(a.VM.DiskCIDs(), a.Disk) }

// disk returns the disk on its node.
func (a Attachment) disk() api.Disk {
	return api.Disk{
		CID: a.Disk, SizeMiB: a.SizeMiB, Filesystem: a.Filesystem, Formatted: a.Formatted, Preallocate: a.Preallocate,
		VM: path.Join(a.VM.Namespace, a.VM.Name),
	}
}

// container returns the container of the attachment Pod. The Pod of a VM with disk_strategy: recreate gets the disk as a volume: the
// container only prepares the volume, or does nothing if the VM Pod already has it.
func (a Attachment) container() corev1.Container {
	container := corev1.Container{
		Name:      attachmentContainer,
		Resources: corev1.ResourceRequirements{Requests: a.requests()},
	}
	wait := inVolume(a.disk().Command(api.Wait)...)
	switch {
	case a.isIdle():
		container.Command, wait = inImage(a.disk().Command(api.Idle)...), inImage(a.disk().Command(api.Wait)...)
	case a.VM.HasRecreateStrategy():
		container.Command = inVolume(a.disk().Command(api.Prepare)...)
	default:
		container.Command = inVolume(a.disk().Command(api.Attach)...)
	}
	if a.Formatted && !a.VM.HasRecreateStrategy() {
		container.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: wait}}}
	} else {
		container.StartupProbe = newStartupProbe(wait)
	}
	container.VolumeMounts = []corev1.VolumeMount{{Name: "devices", MountPath: "/devices"}}
	if a.Mode == corev1.PersistentVolumeBlock {
		container.VolumeDevices = []corev1.VolumeDevice{{Name: "disk", DevicePath: "/dev/volume"}}
	} else {
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "disk", MountPath: "/volume"})
	}
	if a.hasMarkersVolume() {
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "markers", MountPath: "/markers"})
	}
	return container
}

// requests returns the resource requests of the container. Under disk pressure, the kubelet first evicts Pods that use more ephemeral
// storage than they request, of any priority but a critical one: with another PriorityClass, the Pod would be evicted before a VM that
// requests its ephemeral disk. If the VM does not request any, its node may have no capacity for it: a kubelet with
// localStorageCapacityIsolation: false reports none, and the scheduler finds no node for a Pod that requests it.
func (a Attachment) requests() corev1.ResourceList {
	requests := HelperRequests()
	if _, requested := OwnContainer(a.VM.Pod).Resources.Requests[corev1.ResourceEphemeralStorage]; requested {
		requests[corev1.ResourceEphemeralStorage] = mebibytes(16)
	}
	return requests
}

// exclusivityCheckPrefix is the name prefix of the containers that run the exclusivity check.
const exclusivityCheckPrefix = "exclusivity-check-"

// ExclusivityCheckContainer returns an ephemeral container for the attachment Pod that runs the exclusivity check: it opens the device
// exclusively, and removes the device node while it has the device open. Its program is always the CPI's, in a container of its own
// image, whatever version the attachment Pod has.
//
// The container exits with 0 if the VM no longer has the disk, with api.ExitFailed and a result (the users of the disk, or why the
// check failed), or with api.ExitNotPublished. It has a new name: an ephemeral container runs once and is never removed.
func ExclusivityCheckContainer(attachment AttachmentPod, nodeImage string) corev1.EphemeralContainer {
	container := OwnContainer(attachment.Pod)
	isOfProgram := func(mount corev1.VolumeMount) bool {
		return mount.Name == nodeImageVolume || mount.Name == recordVolume
	}
	disk := api.Disk{CID: attachment.Disk(), VM: path.Join(attachment.Namespace, attachment.VM())}
	return corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name:                     exclusivityCheckPrefix + strconv.Itoa(len(attachment.Spec.EphemeralContainers)+1),
		Image:                    nodeImage,
		Command:                  inImage(disk.Command(api.Check)...),
		SecurityContext:          container.SecurityContext,
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		ImagePullPolicy:          corev1.PullIfNotPresent,
		VolumeMounts:             slices.DeleteFunc(slices.Clone(container.VolumeMounts), isOfProgram),
		VolumeDevices:            container.VolumeDevices,
	}}
}

// ExclusivityCheckPatch returns the strategic merge patch for the subresource ephemeralcontainers that adds the container to this
// attachment Pod. The UID keeps it from applying to another Pod of the same name.
func ExclusivityCheckPatch(attachment AttachmentPod, check corev1.EphemeralContainer) []byte {
	return encode(map[string]any{
		"metadata": map[string]any{"uid": attachment.UID},
		"spec":     map[string]any{"ephemeralContainers": []corev1.EphemeralContainer{check}},
	})
}

// IsExclusivityCheck reports whether the ephemeral container of this name runs the exclusivity check.
func IsExclusivityCheck(name string) bool { return strings.HasPrefix(name, exclusivityCheckPrefix) }

// LatestExclusivityCheck returns the name of the latest container that runs the exclusivity check, or "". It compares the numbers in
// the names, because the API server inserts patched containers before existing ones.
func LatestExclusivityCheck(attachment AttachmentPod) (name string) {
	highest := 0
	for _, container := range attachment.Spec.EphemeralContainers {
		number, err := strconv.Atoi(strings.TrimPrefix(container.Name, exclusivityCheckPrefix))
		if err == nil && IsExclusivityCheck(container.Name) && number > highest {
			name, highest = container.Name, number
		}
	}
	return name
}
