package manifest

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Prefix begins every label and annotation that is the CPI's own.
const Prefix = "bosh.cloudfoundry.org/"

// Labels by which the CPI finds its objects again.
const (
	LabelManagedBy = "app.kubernetes.io/managed-by"
	LabelDirector  = Prefix + "director-uuid"
	LabelRole      = Prefix + "role"
	LabelVM        = Prefix + "vm"
	LabelDisk      = Prefix + "disk"
)

// ManagedBy is the value of LabelManagedBy on every object.
const ManagedBy = "bosh-kubernetes-cpi"

// Roles, the values of LabelRole.
const (
	RoleVM         = "vm"
	RoleAttachment = "attachment"
	RoleDisk       = "disk"
	RolePullSecret = "pull-secret"
)

// Annotations.
const (
	// AnnotationDigest identifies what create_vm was asked for, so that a repeated call can tell
	// whether the Pod it finds is its own.
	AnnotationDigest = Prefix + "digest"
	// AnnotationSize is a disk's size in MiB as BOSH asked for it.
	AnnotationSize = Prefix + "size-mib"
	// AnnotationStemcell is the CID of the stemcell that a VM was made from.
	AnnotationStemcell = Prefix + "stemcell"
)

// AnnotationAddress asks the CNI shim for the Pod's addresses.
const AnnotationAddress = Prefix + "ip-address"

// AnnotationFilesystem names the filesystem that a blank disk gets.
const AnnotationFilesystem = Prefix + "filesystem"

// AnnotationAttach says on a disk and on its attachment that it appears as a directory: AttachBind.
const AnnotationAttach = Prefix + "attach"

// AttachBind is the value of AnnotationAttach.
const AttachBind = "bind"

// AnnotationMetadata holds all metadata of a VM or disk as it came, as JSON, so that nothing is
// dropped where Kubernetes does not allow a key or value.
const AnnotationMetadata = Prefix + "metadata"

// Reserved reports whether the CPI itself works with the label or annotation of this name.
func Reserved(name string) bool {
	switch name {
	case LabelDirector, LabelRole, LabelVM, LabelDisk, AnnotationDigest, AnnotationSize,
		AnnotationStemcell, AnnotationAddress, AnnotationFilesystem, AnnotationAttach, AnnotationMetadata, LabelGroup, AnnotationBudget, AnnotationKeep,
		LabelCopy, AnnotationCopyOf, AnnotationCopiedTo, AnnotationAddresses, AnnotationVM:
		return true
	}
	return strings.HasPrefix(name, servicePrefix)
}

// Belongs reports whether an object is this director's, and may be changed and deleted for it.
func Belongs(object metav1.Object, director string) bool {
	labels := object.GetLabels()
	return labels[LabelManagedBy] == ManagedBy && labels[LabelDirector] == director
}

// OfDirector selects all objects of this director.
func OfDirector(director string) string {
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

// owned is the metadata that every object of the CPI carries.
func owned(name, namespace, director, role string) metav1.ObjectMeta {
	labels := map[string]string{LabelManagedBy: ManagedBy, LabelRole: role}
	if label, ok := LabelValue(director); ok && director != "" {
		labels[LabelDirector] = label
	}
	return metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: labels}
}

// LabelValue answers the value as a label can hold it. Kubernetes allows 63 characters of letters,
// digits, '-', '_' and '.'; a value with others cannot be kept without changing it.
func LabelValue(value string) (string, bool) {
	if len(validation.IsValidLabelValue(value)) > 0 {
		return "", false
	}
	return value, true
}

// LabelKey answers the key under Prefix as a label's or annotation's name can be: characters that
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
