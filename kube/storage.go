package kube

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// StorageClasses returns the cluster's StorageClasses. Few calls need the kinds of this group, so each method creates a connection.
func (c *Client) StorageClasses() (*Resource[*storagev1.StorageClass, *storagev1.StorageClassList], error) {
	via, err := c.storageConnection()
	if err != nil {
		return nil, err
	}
	return newResource(via, "StorageClass", "storageclasses", newOf[storagev1.StorageClass], newOf[storagev1.StorageClassList]), nil
}

// CSIDrivers returns the cluster's CSIDrivers.
func (c *Client) CSIDrivers() (*Resource[*storagev1.CSIDriver, *storagev1.CSIDriverList], error) {
	via, err := c.storageConnection()
	if err != nil {
		return nil, err
	}
	return newResource(via, "CSIDriver", "csidrivers", newOf[storagev1.CSIDriver], newOf[storagev1.CSIDriverList]), nil
}

// CSINodes returns the cluster's CSINodes, which contain the volume limit of each driver on each node.
func (c *Client) CSINodes() (*Resource[*storagev1.CSINode, *storagev1.CSINodeList], error) {
	via, err := c.storageConnection()
	if err != nil {
		return nil, err
	}
	return newResource(via, "CSINode", "csinodes", newOf[storagev1.CSINode], newOf[storagev1.CSINodeList]), nil
}

// VolumeAttachments returns the cluster's VolumeAttachments, which contain the volumes of each node.
func (c *Client) VolumeAttachments() (*Resource[*storagev1.VolumeAttachment, *storagev1.VolumeAttachmentList], error) {
	via, err := c.storageConnection()
	if err != nil {
		return nil, err
	}
	return newResource(via, "VolumeAttachment", "volumeattachments",
		newOf[storagev1.VolumeAttachment], newOf[storagev1.VolumeAttachmentList]), nil
}

// storageConnection returns a connection for the kinds of storage.k8s.io that have no namespace.
func (c *Client) storageConnection() (connection, error) {
	via, err := c.connect("/apis", storagev1.SchemeGroupVersion, storagev1.AddToScheme)
	via.namespace = ""
	return via, err
}

// VolumeLimitExceeded returns why the volumes, all of CSI drivers, cannot be attached to the node in addition to its present
// ones; or "". It compares the limits in the CSINode with the volumes in the status of the Node.
func VolumeLimitExceeded(node *corev1.Node, limits *storagev1.CSINode, volumes []*corev1.PersistentVolume) string {
	attached := map[string]bool{}
	for _, volume := range node.Status.VolumesAttached {
		attached[string(volume.Name)] = true
	}
	for _, driver := range limits.Spec.Drivers {
		if driver.Allocatable == nil || driver.Allocatable.Count == nil {
			continue
		}
		// The attach-detach controller forms the name: Kubernetes' pkg/volume/util, GetUniqueVolumeName.
		prefix, attachedCount, additional := "kubernetes.io/csi/"+driver.Name+"^", 0, 0
		for name := range attached {
			if strings.HasPrefix(name, prefix) {
				attachedCount++
			}
		}
		for _, volume := range volumes {
			if volume.Spec.CSI.Driver == driver.Name && !attached[prefix+volume.Spec.CSI.VolumeHandle] {
				additional++
			}
		}
		if limit := int(*driver.Allocatable.Count); additional > 0 && attachedCount+additional > limit {
			return fmt.Sprintf("driver %s can attach %d volumes, has %d and would need %d more", driver.Name, limit, attachedCount, additional)
		}
	}
	return ""
}
