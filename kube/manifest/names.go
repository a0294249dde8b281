package manifest

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Prefix begins every label and annotation that is the CPI's own.
const Prefix = "bosh.cloudfoundry.org/"

// LabelManagedBy and its value are on every object; see
// https://kubernetes.io/docs/concepts/overview/working-with-objects/common-labels/.
const (
	LabelManagedBy = "app.kubernetes.io/managed-by"
	ManagedBy      = "bosh-kubernetes-cpi"
)

// Labels by which the CPI finds its objects again.
const (
	LabelDirector = Prefix + "director-uuid"
	LabelRole     = Prefix + "role"
	// LabelVM is on a machine's Pods, and on the PVC of a disk while a VM has it: see DiskOwner.
	LabelVM   = Prefix + "vm"
	LabelDisk = Prefix + "disk"
	// LabelGroup is on the machines of one instance group, and on their attachments. The annotation of
	// the same name holds the group's name as BOSH gave it.
	LabelGroup = Prefix + "group"
	// LabelRequestedAddresses is on a machine with static addresses: see AddressLabel.
	LabelRequestedAddresses = Prefix + "address"
	// LabelCopy is on a disk that update_disk makes to take another one's place, until it has: its value
	// tells how far that is: CopyUnproven, CopyProven or CopyAccepted.
	LabelCopy = Prefix + "copy"
	// LabelUnfinished is on a snapshot until the call that takes it answers.
	LabelUnfinished = Prefix + "unfinished"
	// LabelPrefetch is on the Pods that have nodes pull a stemcell's image: the name of their DaemonSet.
	LabelPrefetch = Prefix + "prefetch"
)

// Roles, the values of LabelRole: what an object is for.
const (
	RoleVM         = "vm"
	RoleTemplate   = "template" // the PodTemplate of a machine that is made again for each disk
	RoleStorage    = "storage"  // the claim of such a machine's own storage
	RoleAttachment = "attachment"
	RoleDisk       = "disk"
	RoleCopy       = "copy"   // the Pod that copies a disk
	RoleReboot     = "reboot" // the Pod that restarts a machine
	RoleFlush      = "flush"  // the Pod that writes out what is in memory for a disk
	RoleSnapshot   = "snapshot"
	RoleEvent      = "event"
	RolePullSecret = "pull-secret"
	RoleService    = "service"
	RolePDB        = "budget"
	RoleNetwork    = "network"
	RolePrefetch   = "prefetch" // the DaemonSet with which nodes pull a stemcell's image, and its Pods
)

// Values of LabelCopy.
const (
	// CopyIncomplete is no disk yet: its data is not there, or not known to be right.
	CopyIncomplete = "unproven"
	// CopyVerified has the data. The old disk stays until the director has named the new one.
	CopyVerified = "proven"
	// CopyAccepted was named by the director: it is the disk from now on, and the old one is about to be deleted.
	CopyAccepted = "accepted"
)

// Annotations of machines.
const (
	// AnnotationDigest identifies what create_vm was asked for, so that a repeated call can tell
	// whether the Pod it finds is its own; and likewise what the DaemonSet of a create_stemcell is to be.
	AnnotationDigest = Prefix + "digest"
	// AnnotationStemcell is the CID of the stemcell that a VM was made from, or whose image nodes pull.
	AnnotationStemcell = Prefix + "stemcell"
	// AnnotationRequestedAddresses asks the CNI shim for the Pod's addresses.
	AnnotationRequestedAddresses = Prefix + "ip-address"
	// AnnotationDisruptionBudget holds, on machines and their group's budget, how many may be away; see Budget.
	AnnotationDisruptionBudget = Prefix + "disruption-budget"
	// AnnotationFirstPodAddresses holds, on the PodTemplate of a machine that is made again for each disk, the
	// addresses of its first Pod.
	AnnotationFirstPodAddresses = Prefix + "addresses"
	// AnnotationMetadata holds all metadata of a VM or disk as it came, as JSON, so that nothing is
	// dropped where Kubernetes does not allow a key or value.
	AnnotationMetadata = Prefix + "metadata"
)

// AnnotationCall names, on what a call creates and removes again when it fails, the call that owns it: the one that
// created it, or a repeated one that has adopted it since. Its value is a UUID of version 7, which begins with the
// time of the call.
const AnnotationCall = Prefix + "call"

// Annotations of disks.
const (
	// AnnotationSize is a disk's size in MiB as BOSH asked for it.
	AnnotationSize = Prefix + "size-mib"
	// AnnotationFilesystem names the filesystem that a blank disk gets.
	AnnotationFilesystem = Prefix + "filesystem"
	// AnnotationReserve is "true" on a disk whose image file is to have all of its room from the first attachment on.
	AnnotationReserve = Prefix + "reserve"
	// AnnotationSnapshotClass names the VolumeSnapshotClass of a disk's snapshots, where it is not the default.
	AnnotationSnapshotClass = Prefix + "snapshot-class"
	// AnnotationAttach says on a disk and on its attachment that it appears as a directory: AttachBind.
	AnnotationAttach = Prefix + "attach"
	// AnnotationFormatted is on a disk once it has a filesystem: a blank volume is not that disk's.
	AnnotationFormatted = Prefix + "formatted"
	// AnnotationCopyOf names, on a disk with LabelCopy and for good, the one that it takes the place of.
	AnnotationCopyOf = Prefix + "copy-of"
	// AnnotationCopiedTo names, on the old disk, the one that is to take its place.
	AnnotationCopiedTo = Prefix + "copied-to"
	// AnnotationOwner is the UID of the Pod that may open a disk's volume: see DiskOwner.
	AnnotationOwner = Prefix + "owner-uid"
)

// AttachBind is the value of AnnotationAttach.
const AttachBind = "bind"

// AnnotationKeep marks a Service that stays when its last machine goes.
const AnnotationKeep = Prefix + "keep"

// servicePrefix begins the labels that put a machine behind a Service. It is not Prefix, so that no
// metadata's name can be one of them.
const servicePrefix = "service." + Prefix

// AnnotationInstance and AnnotationInstanceID hold the instance's id, on VMs and on disks: the director's
// metadata puts them there under these names.
const (
	AnnotationInstance   = Prefix + "id"
	AnnotationInstanceID = Prefix + "instance_id"
)

// reservedKeys are the labels and annotations that the CPI itself works with. names_test.go proves that none is
// missing: one that is would be the operator's to set, and a VM's metadata could overwrite it.
var reservedKeys = []string{
	LabelManagedBy,
	LabelDirector,
	LabelRole,
	LabelVM,
	LabelDisk,
	LabelGroup,
	LabelRequestedAddresses,
	LabelCopy,
	LabelUnfinished,
	LabelPrefetch,
	AnnotationDigest,
	AnnotationStemcell,
	AnnotationRequestedAddresses,
	AnnotationDisruptionBudget,
	AnnotationFirstPodAddresses,
	AnnotationMetadata,
	AnnotationSize,
	AnnotationFilesystem,
	AnnotationFormatted,
	AnnotationReserve,
	AnnotationSnapshotClass,
	AnnotationAttach,
	AnnotationCopyOf,
	AnnotationCopiedTo,
	AnnotationOwner,
	AnnotationKeep,
	AnnotationCall,
}

// IsReservedKey reports whether the CPI itself works with the label or annotation of this name.
func IsReservedKey(name string) bool {
	return slices.Contains(reservedKeys, name) || strings.HasPrefix(name, servicePrefix)
}

// BelongsTo reports whether an object is this director's, and may be changed and deleted for it.
func BelongsTo(object metav1.Object, director string) bool {
	labels := object.GetLabels()
	return labels[LabelManagedBy] == ManagedBy && labels[LabelDirector] == director
}

// DirectorSelector selects all objects of this director.
func DirectorSelector(director string) string {
	return LabelManagedBy + "=" + ManagedBy + "," + LabelDirector + "=" + director
}

// VMName is the name of an agent's Pod and Secret, and the VM's CID.
func VMName(agentID string) string { return "agent-" + agentID }

// DiskName is the name of a disk's claim, and the disk's CID.
func DiskName(uuid string) string { return "disk-" + uuid }

// AttachmentName is the name of the one Pod that can attach this disk.
func AttachmentName(diskCID string) string { return diskCID + "-attachment" }

// ValidName reports whether an object can have this name; every name the CPI makes up is also a
// label's value, which must be shorter.
func ValidName(name string) bool {
	return len(name) <= validation.LabelValueMaxLength-len("-attachment") && len(validation.IsDNS1123Subdomain(name)) == 0
}

// newObjectMeta is the metadata that every object of the CPI carries.
func newObjectMeta(name, namespace, director, role string) metav1.ObjectMeta {
	labels := map[string]string{LabelManagedBy: ManagedBy, LabelRole: role}
	if label, ok := LabelValue(director); ok && director != "" {
		labels[LabelDirector] = label
	}
	return metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: labels}
}

// LabelValue returns the value as a label can hold it. Kubernetes allows 63 characters of letters,
// digits, '-', '_' and '.'; a value with others cannot be kept without changing it.
func LabelValue(value string) (string, bool) {
	if len(validation.IsValidLabelValue(value)) > 0 {
		return "", false
	}
	return value, true
}

// AddressLabel is the value of LabelAddress for these addresses; "" for none. A label has no ':' and ','.
func AddressLabel(addresses []string) string {
	label, _ := LabelValue(strings.ReplaceAll(strings.Join(addresses, "_"), ":", "-"))
	return label
}

// RequestsAddress reports whether a machine with this value of LabelAddress asked for the address.
func RequestsAddress(label, address string) bool {
	requested := AddressLabel([]string{address})
	return requested != "" && slices.Contains(strings.Split(label, "_"), requested)
}

// LabelKey returns the key under Prefix as a label's or annotation's name can be: characters that
// it may not have become '-'.
func LabelKey(key string) (string, bool) {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '-'
	}, key)
	name := Prefix + strings.Trim(clean, "-_.")
	return name, len(validation.IsQualifiedName(name)) == 0
}
