package manifest

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// The functions in this file read what the CPI recorded in the labels and annotations of its objects; see names.go. Without a record, they
// return "".

// HasRole reports whether the object has the role.
func HasRole(object metav1.Object, role string) bool { return RoleOf(object) == role }

// RoleOf returns the role of the object.
func RoleOf(object metav1.Object) string { return object.GetLabels()[LabelRole] }

// DirectorOf returns the UUID of the object's director.
func DirectorOf(object metav1.Object) string { return object.GetLabels()[LabelDirector] }

// DirectorNameOf returns the name of the director of a VM or disk, or "" if the director has not set it.
func DirectorNameOf(object metav1.Object) string { return object.GetAnnotations()[AnnotationDirector] }

// VMOf returns the CID of the VM to which a Pod belongs, or which has a disk.
func VMOf(object metav1.Object) string { return object.GetLabels()[LabelVM] }

// DiskOf returns the CID of the disk of an attachment Pod or VolumeSnapshot.
func DiskOf(object metav1.Object) string { return object.GetLabels()[LabelDisk] }

// GroupLabelOf returns the value of LabelGroup.
func GroupLabelOf(object metav1.Object) string { return object.GetLabels()[LabelGroup] }

// GroupNameOf returns the name of the VM's instance group, of which GroupLabelOf may be a shortened form.
func GroupNameOf(object metav1.Object) string { return object.GetAnnotations()[LabelGroup] }

// SizeOf returns the size of the disk in MiB, in decimal.
func SizeOf(object metav1.Object) string { return object.GetAnnotations()[AnnotationSize] }

// DigestOf returns the digest of the object; see AnnotationDigest.
func DigestOf(object metav1.Object) string { return object.GetAnnotations()[AnnotationDigest] }

// StemcellOf returns the CID of the stemcell.
func StemcellOf(object metav1.Object) string { return object.GetAnnotations()[AnnotationStemcell] }

// MetadataOf returns the director's metadata in JSON.
func MetadataOf(object metav1.Object) string { return object.GetAnnotations()[AnnotationMetadata] }

// FirstPodAddressesOf returns the addresses of the first Pod of a VM with disk_strategy: recreate, separated by commas.
func FirstPodAddressesOf(object metav1.Object) string {
	return object.GetAnnotations()[AnnotationFirstPodAddresses]
}

// RequestedAddressesOf returns the value of LabelRequestedAddresses; see RequestsAddress.
func RequestedAddressesOf(object metav1.Object) string {
	return object.GetLabels()[LabelRequestedAddresses]
}

// CallOf returns the ID of the call that owns the object; see AnnotationCall.
func CallOf(object metav1.Object) string { return object.GetAnnotations()[AnnotationCall] }

// ManagerOf returns the program that manages the object: ManagedBy for objects of the CPI.
func ManagerOf(object metav1.Object) string { return object.GetLabels()[LabelManagedBy] }
