package manifest

import (
	"encoding/json"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/kube/manifest/node"
)

// attachmentGracePeriod is how long a deleted attachment may keep its device while something still uses
// it: longer than any node lives. An attachment leaves as soon as its device is free, and with one that left
// earlier the kubelet would unmap the volume under a filesystem that a machine has mounted.
const attachmentGracePeriod = 10 * 365 * 24 * 60 * 60 // seconds

// Attachment makes one disk appear in one running VM.
type Attachment struct {
	Disk       string // the disk's CID
	SizeMiB    int64
	Filesystem string // made on a blank disk: ext4 or xfs
	Formatted  bool   // it had its filesystem once, and is not to be blank
	Reserve    bool   // see AnnotationReserve
	Mode       corev1.PersistentVolumeMode
	Bind       bool        // as a directory, see AnnotationAttach
	VM         *corev1.Pod // one that is Recreated has the disk among its own volumes
	Director   string
	// PriorityClass is the machine's when empty.
	PriorityClass string
}

// Pod is the attachment. It runs on the VM's node from the VM's image, needs no address, and belongs
// to the VM's Pod.
//
// Its one container prepares the device and its node, holds them, and when it is told to end lets go
// once the device is free. The kubelet reports it running after its postStart hook, which waits for the
// node: the Pod is ready when the device is there. (A readiness probe would say the same up to a second
// later, an init container up to two.)
func (a Attachment) Pod() *corev1.Pod {
	meta := newObjectMeta(AttachmentName(a.Disk), a.VM.Namespace, a.Director, RoleAttachment)
	meta.Labels[LabelVM] = a.VM.Name
	meta.Labels[LabelDisk] = a.Disk
	// See DiskBudget. One that the garbage collector does not take away with its machine's Pod would keep
	// its node from being drained.
	if group := a.VM.Labels[LabelGroup]; group != "" && !IsRecreated(a.VM) {
		meta.Labels[LabelGroup] = group
	}
	if a.Bind {
		meta.Annotations = map[string]string{AnnotationAttach: AttachBind}
	}
	meta.OwnerReferences = []metav1.OwnerReference{OwnerReference(a.VM)}
	pod := newHelperPod(a.VM, meta, a.container())
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "disk", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: a.Disk},
		}},
	}
	devices := devicesVolume(a.VM.Namespace, a.VM.Name)
	if IsRecreated(a.VM) {
		devices = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	}
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "devices", VolumeSource: devices})
	if a.hasMarksVolume() {
		marks := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "marks", VolumeSource: marks})
	}
	if a.PriorityClass != "" {
		pod.Spec.PriorityClassName = a.PriorityClass
	}
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	pod.Spec.TerminationGracePeriodSeconds = new(int64(attachmentGracePeriod))
	addOwnerGate(pod)
	if a.VM.Spec.NodeName != "" {
		pod.Spec.Affinity = nodeAffinityTo(a.VM.Spec.NodeName)
	} else {
		pod.Spec.Affinity = podAffinityTo(a.VM)
	}
	return pod
}

// hasMarksVolume reports whether the attachment notes for itself, across its node's boots, that the machine has had the disk.
func (a Attachment) hasMarksVolume() bool {
	return a.Mode == corev1.PersistentVolumeBlock && !IsRecreated(a.VM)
}

func (a Attachment) container() corev1.Container {
	container := corev1.Container{
		Name:    attachmentContainer,
		Command: node.Attach(),
		Env: []corev1.EnvVar{
			{Name: "DISK", Value: a.Disk},
			{Name: "SIZE_MIB", Value: strconv.FormatInt(a.SizeMiB, 10)},
			{Name: "FILESYSTEM", Value: a.Filesystem},
			{Name: "FORMATTED", Value: strconv.FormatBool(a.Formatted)},
			{Name: "VM", Value: path.Join(a.VM.Namespace, a.VM.Name)},
		},
		Resources: corev1.ResourceRequirements{Requests: helperRequests()},
		Lifecycle: &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{
			Exec: &corev1.ExecAction{Command: node.WaitAttached()},
		}},
	}
	if a.Reserve {
		container.Env = append(container.Env, reserveEnv)
	}
	switch {
	case slices.Contains(DiskCIDs(a.VM.Spec), a.Disk):
		container.Command = node.Idle()
	case IsRecreated(a.VM):
		container.Command = node.PrepareVolume()
	case a.Bind:
		container.Command = node.AttachDirectory()
		container.VolumeMounts = directoryMounts
		return container
	}
	container.VolumeMounts = []corev1.VolumeMount{{Name: "devices", MountPath: "/devices"}}
	if a.Mode == corev1.PersistentVolumeBlock {
		container.VolumeDevices = []corev1.VolumeDevice{{Name: "disk", DevicePath: "/dev/volume"}}
	} else {
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "disk", MountPath: "/volume"})
	}
	if a.hasMarksVolume() {
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "marks", MountPath: "/marks"})
	}
	return container
}

// reserveEnv has an image file take all of its room from the volume.
var reserveEnv = corev1.EnvVar{Name: "RESERVE", Value: "true"}

// directoryMounts are those of an attachment that makes a directory appear: what it mounts in the
// machine's folder reaches the node, and from there the machine.
var directoryMounts = []corev1.VolumeMount{
	{Name: "devices", MountPath: "/devices", MountPropagation: new(corev1.MountPropagationBidirectional)},
	{Name: "disk", MountPath: "/volume"},
}

// IsDirectory reports whether the disk, or the attachment, is one that appears as a directory.
func IsDirectory(object metav1.Object) bool {
	return object.GetAnnotations()[AnnotationAttach] == AttachBind
}

// releasePrefix begins the names of the containers that run once in an attachment.
const releasePrefix = "release-"

// ReleaseContainer is an ephemeral container for the attachment that proves that nothing uses the device, and
// takes its node away in the same moment. It exits with 0 when it did, and with 1 when the device is
// in use; its termination message then names the users. A directory likewise.
func ReleaseContainer(attachment *corev1.Pod) corev1.EphemeralContainer {
	if IsDirectory(attachment) {
		release := newReleaseContainer(attachment, node.ReleaseDirectory())
		release.VolumeMounts = directoryMounts
		return release
	}
	return newReleaseContainer(attachment, node.Release())
}

// AddReleaseContainer is the strategic merge patch, for the subresource ephemeralcontainers, that adds the container
// to exactly this attachment Pod.
func AddReleaseContainer(attachment *corev1.Pod, release corev1.EphemeralContainer) ([]byte, error) {
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": attachment.UID},
		"spec":     map[string]any{"ephemeralContainers": []corev1.EphemeralContainer{release}},
	})
}

// ExitNotPublished is the status with which a release ends that has found nothing, of an attachment that does not hold its disk.
const ExitNotPublished = node.ExitNotPublished

// IsReleaseContainer reports whether the ephemeral container of this name proves the device free.
func IsReleaseContainer(name string) bool { return strings.HasPrefix(name, releasePrefix) }

// LastReleaseContainer is the name of the last container that was to prove the device free, or "". Their names are
// numbered: the API server puts one that a patch adds before those that are there.
func LastReleaseContainer(attachment *corev1.Pod) (last string) {
	latest := 0
	for _, container := range attachment.Spec.EphemeralContainers {
		number, err := strconv.Atoi(strings.TrimPrefix(container.Name, releasePrefix))
		if err == nil && IsReleaseContainer(container.Name) && number > latest {
			last, latest = container.Name, number
		}
	}
	return last
}

// newReleaseContainer is an ephemeral container with a name of its own: it runs once, and stays in the Pod.
func newReleaseContainer(attachment *corev1.Pod, command []string) corev1.EphemeralContainer {
	container := OwnContainer(attachment)
	return corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name:                     releasePrefix + strconv.Itoa(len(attachment.Spec.EphemeralContainers)+1),
		Image:                    container.Image,
		Command:                  command,
		Env:                      container.Env,
		SecurityContext:          container.SecurityContext,
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		ImagePullPolicy:          corev1.PullIfNotPresent,
		VolumeMounts:             []corev1.VolumeMount{{Name: "devices", MountPath: "/devices"}},
	}}
}
