package instances

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"bosh-kubernetes-cpi/cpi/disk"
	"bosh-kubernetes-cpi/cpi/manifest"
)

// Disk is a persistent disk of an instance.
type Disk struct {
	CID          string `json:"cid"` // name of the PVC
	Size         string `json:"size"`
	StorageClass string `json:"class,omitempty"`
	// State is Terminating while the PVC is being deleted; Attached; Attaching until the attachment Pod is ready; Detaching while that Pod
	// is being deleted; Lost if that Pod is finished, for example after an eviction; or Unattached without an attachment Pod.
	State string `json:"state"`
	// Attachment is the name of the attachment Pod, and Node is its node.
	Attachment string `json:"attachment,omitempty"`
	Node       string `json:"node,omitempty"`
}

// disksOf returns the disks of the VM: PVCs with the VM's label, and PVCs with an attachment Pod for the VM.
func disksOf(vm manifest.VMPod, pods []*corev1.Pod, pvcs []*corev1.PersistentVolumeClaim) []Disk {
	var found []Disk
	for _, pvc := range pvcs {
		role := manifest.RoleOf(pvc)
		attachment := manifest.FindAttachment(pods, pvc.Name)
		owned := manifest.VMOf(pvc) == vm.Name || attachment.Pod != nil && attachment.VM() == vm.Name
		if pvc.Namespace != vm.Namespace || role != manifest.RoleDisk || !owned {
			continue
		}
		shown := Disk{CID: pvc.Name, Size: diskSize(pvc), State: "Unattached"}
		if pvc.Spec.StorageClassName != nil {
			shown.StorageClass = *pvc.Spec.StorageClassName
		}
		if attachment.Pod != nil {
			shown.Attachment, shown.Node, shown.State = attachment.Name, attachment.Spec.NodeName, diskState(attachment)
		}
		if pvc.DeletionTimestamp != nil {
			shown.State = "Terminating"
		}
		found = append(found, shown)
	}
	return found
}

// diskState returns the state of a disk with this attachment Pod.
func diskState(attachment manifest.AttachmentPod) string {
	switch state := disk.StateOf(attachment); {
	case state.IsFinished():
		return "Lost"
	case state.IsDeleted():
		return "Detaching"
	case state.HasPublished():
		return "Attached"
	}
	return "Attaching"
}

// diskSize returns the size requested by the director. The volume may be larger.
func diskSize(pvc *corev1.PersistentVolumeClaim) string {
	if mib, err := strconv.ParseInt(manifest.SizeOf(pvc), 10, 64); err == nil {
		return resource.NewQuantity(mib<<20, resource.BinarySI).String()
	}
	return pvc.Spec.Resources.Requests.Storage().String()
}
