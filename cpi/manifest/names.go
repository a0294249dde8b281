package manifest

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Prefix begins the keys of labels and annotations that only the CPI uses.
const Prefix = "bosh.cloudfoundry.org/"

// LabelManagedBy, with the value ManagedBy, is on every object of the CPI; see
// https://kubernetes.io/docs/concepts/overview/working-with-objects/common-labels/.
const (
	LabelManagedBy = "app.kubernetes.io/managed-by"
	ManagedBy      = "bosh-kubernetes-cpi"
)

// Labels by which the CPI finds its objects.
const (
	LabelDirector = Prefix + "director-uuid"
	LabelRole     = Prefix + "role"
	// LabelVM is on a VM's objects, and on the PVC of a disk while a VM has it: see DiskOwner.
	LabelVM   = Prefix + "vm"
	LabelDisk = Prefix + "disk"
	// LabelDynamicDisk is on the PVC of a dynamic disk if the disk's name is a valid label value. The annotation of the same name always
	// has the name.
	LabelDynamicDisk = Prefix + "dynamic-disk"
	// LabelGroup is on the VM Pods of one instance group, and on their attachment Pods. The annotation of the same name is the
	// group's name in BOSH.
	LabelGroup = Prefix + "group"
	// LabelRequestedAddresses is on a VM with static addresses: see AddressLabel.
	LabelRequestedAddresses = Prefix + "requested-addresses"
	// LabelIncomplete is on a snapshot until the call that takes it is about to succeed.
	LabelIncomplete = Prefix + "incomplete"
)

// Roles, the values of LabelRole: what an object is for.
const (
	RoleVM            = "vm"
	RoleVMTemplate    = "vm-template"    // the PodTemplate of a VM with disk_strategy: recreate
	RoleEphemeralDisk = "ephemeral-disk" // the PVC of the ephemeral disk of a VM with disk_strategy: recreate
	RoleAttachment    = "attachment"
	RoleDisk          = "disk"
	RoleReboot        = "reboot" // the reboot Pod
	RoleFlush         = "flush"  // the flush Pod
	RoleSnapshot      = "snapshot"
	RoleEvent         = "event"
	RolePullSecret    = "pull-secret"
	RoleService       = "service"
	RolePDB           = "pod-disruption-budget"
)

// Annotations of VMs.
const (
	// AnnotationDigest is a digest of the create_vm request, by which a retried call recognizes its Pod.
	AnnotationDigest = Prefix + "digest"
	// AnnotationStemcell is the CID of the stemcell of a VM.
	AnnotationStemcell = Prefix + "stemcell"
	// AnnotationBooted is "true" on a VM that has booted: from then on, an empty ephemeral disk is another one.
	AnnotationBooted = Prefix + "booted"
	// AnnotationRequestedAddresses requests the Pod's addresses from the CNI shim.
	AnnotationRequestedAddresses = Prefix + "ip-address"
	// AnnotationDisruptionBudget is the result of DisruptionBudget.String, on VM Pods and on their group's PodDisruptionBudget.
	AnnotationDisruptionBudget = Prefix + "disruption-budget"
	// AnnotationFirstPodAddresses is on the PodTemplate of a VM with disk_strategy: recreate: the addresses of its first Pod, separated by
	// commas.
	AnnotationFirstPodAddresses = Prefix + "first-pod-addresses"
	// AnnotationPreviousVersion is on the PodTemplate of a VM with disk_strategy: recreate: the resourceVersion that the last change
	// replaced. It makes each TemplateChange a new version, even if the PodTemplate already had the result.
	AnnotationPreviousVersion = Prefix + "previous-version"
	// AnnotationMetadata is the complete metadata of a VM, disk or snapshot as JSON, including keys and values that are not valid
	// in labels and annotations.
	AnnotationMetadata = Prefix + "metadata"
)

// AnnotationCall is the ID of the call that owns an object: the call that created it, or a retried one that adopted it. Only the
// owner deletes the object when it fails.
const AnnotationCall = Prefix + "call-id"

// Annotations of disks.
const (
	// AnnotationSize is a disk's size in MiB as BOSH requested it.
	AnnotationSize = Prefix + "size-mib"
	// AnnotationFilesystem is the filesystem that is created on a blank disk: ext4 or xfs. On a VM Pod, it is that of the VM's disks
	// without this annotation, from env.persistent_disk_fs.
	AnnotationFilesystem = Prefix + "filesystem"
	// AnnotationPreallocate is "true" if the disk's image file is allocated in full size when the disk is attached.
	AnnotationPreallocate = Prefix + "preallocate"
	// AnnotationSnapshotClass is the VolumeSnapshotClass for snapshots of a disk, if it is not the default.
	AnnotationSnapshotClass = Prefix + "snapshot-class"
	// AnnotationFormatted is on a disk once a VM had it, and on the attachment Pod with which the VM got it. Its value is FormattedDevice or
	// FormattedDirectory.
	AnnotationFormatted = Prefix + "formatted"
	// AnnotationReattached is "true" on an attachment Pod for a disk that the VM already had, according to the PVC when the Pod was built. For
	// example, the Pod replaces a lost one.
	AnnotationReattached = Prefix + "reattached"
	// AnnotationOwner is the UID of the Pod that may open a disk's volume: see DiskOwner.
	AnnotationOwner = Prefix + "owner-uid"
)

// Values of AnnotationFormatted.
const (
	// FormattedDevice is the value if the disk has a filesystem, in an image file or on a Block volume. From then on, a blank volume is an
	// error.
	FormattedDevice = "device"
	// FormattedDirectory is the value if the files are on the Filesystem volume itself: see AttachmentPod.IsDirectory.
	FormattedDirectory = "directory"
)

// AnnotationKeep is "true" on a Service that stays when its last VM is deleted.
const AnnotationKeep = Prefix + "keep"

// servicePrefix begins the labels of the VMs behind a Service. It differs from Prefix, so that the director's metadata cannot set
// such a label.
const servicePrefix = "service." + Prefix

// Annotations that contain the director's metadata.
const (
	// AnnotationVMGroup and AnnotationVMIndex are the name of the instance group and the index of the instance, on VMs.
	AnnotationVMGroup = Prefix + "job"
	AnnotationVMIndex = Prefix + "index"
	// AnnotationDeployment is the name of the deployment, on VMs and disks.
	AnnotationDeployment = Prefix + "deployment"
	// AnnotationDirector is the name of the director, on VMs and disks. The BOSH CLI sets CreateEnvDirector.
	AnnotationDirector = Prefix + "director"
)

// CreateEnvDirector is the name of the director in the metadata of VMs that `bosh create-env` creates.
const CreateEnvDirector = "bosh-init"

// reservedKeys are the labels and annotations that the CPI itself uses; names_test.go checks that none is missing. Cloud properties
// and the director's metadata cannot set them.
var reservedKeys = []string{
	LabelManagedBy,
	LabelDirector,
	LabelRole,
	LabelVM,
	LabelDisk,
	LabelDynamicDisk,
	LabelGroup,
	LabelRequestedAddresses,
	LabelIncomplete,
	AnnotationDigest,
	AnnotationStemcell,
	AnnotationBooted,
	AnnotationRequestedAddresses,
	AnnotationDisruptionBudget,
	AnnotationFirstPodAddresses,
	AnnotationPreviousVersion,
	AnnotationMetadata,
	AnnotationSize,
	AnnotationFilesystem,
	AnnotationFormatted,
	AnnotationPreallocate,
	AnnotationSnapshotClass,
	AnnotationReattached,
	AnnotationOwner,
	AnnotationKeep,
	AnnotationCall,
}

// BelongsTo reports whether the object belongs to this director: only then may the CPI change or delete it for the director.
func BelongsTo(object metav1.Object, director string) bool {
	labels := object.GetLabels()
	return labels[LabelManagedBy] == ManagedBy && labels[LabelDirector] == director
}

// ManagedSelector is the label selector of all objects of the CPI, of any director.
const ManagedSelector = LabelManagedBy + "=" + ManagedBy

// DirectorSelector returns the label selector of all objects of this director.
func DirectorSelector(director string) string {
	return ManagedSelector + "," + LabelDirector + "=" + director
}

// VMName returns the name of a VM's Pod, PodTemplate and Secret, which is the VM's CID.
func VMName(agentID string) string { return "agent-" + agentID }

// DiskName returns the name of a disk's PVC, which is the disk's CID.
func DiskName(uuid string) string { return "disk-" + uuid }

// AttachmentName returns the name of the disk's attachment Pod.
func AttachmentName(diskCID string) string { return diskCID + "-attachment" }

// ValidName reports whether the name is valid for an object, and short enough that AttachmentName is a valid label value, too.
func ValidName(name string) bool {
	return len(name) <= validation.LabelValueMaxLength-len("-attachment") && len(validation.IsDNS1123Subdomain(name)) == 0
}

// newObjectMeta returns the metadata that all objects of the CPI have. Without a director, it omits LabelDirector.
func newObjectMeta(name, namespace, director, role string) metav1.ObjectMeta {
	labels := map[string]string{LabelManagedBy: ManagedBy, LabelRole: role}
	if label, ok := LabelValue(director); ok && director != "" {
		labels[LabelDirector] = label
	}
	return metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: labels}
}

// AddressLabel returns the value of LabelRequestedAddresses for these addresses: separated by '_', with ':' replaced by '-'. It is ""
// without addresses, or if the value is too long.
func AddressLabel(addresses []string) string {
	label, _ := LabelValue(strings.ReplaceAll(strings.Join(addresses, "_"), ":", "-"))
	return label
}

// RequestsAddress reports whether a VM with this value of LabelRequestedAddresses requests the address.
func RequestsAddress(label, address string) bool {
	requested := AddressLabel([]string{address})
	return requested != "" && slices.Contains(strings.Split(label, "_"), requested)
}
