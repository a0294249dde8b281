package kube

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// StorageClasses are the cluster's. Few calls need them, so that their client is made when asked for.
func (c *Client) StorageClasses() (*Resource[*storagev1.StorageClass, *storagev1.StorageClassList], error) {
	via, err := c.storageConnection()
	if err != nil {
		return nil, err
	}
	return newResource(via, "StorageClass", "storageclasses", newOf[storagev1.StorageClass], newOf[storagev1.StorageClassList]), nil
}

// CSIDrivers are the cluster's.
func (c *Client) CSIDrivers() (*Resource[*storagev1.CSIDriver, *storagev1.CSIDriverList], error) {
	via, err := c.storageConnection()
	if err != nil {
		return nil, err
	}
	return newResource(via, "CSIDriver", "csidrivers", newOf[storagev1.CSIDriver], newOf[storagev1.CSIDriverList]), nil
}

// CSINodes say how many volumes each node takes of each driver. They are the cluster's.
func (c *Client) CSINodes() (*Resource[*storagev1.CSINode, *storagev1.CSINodeList], error) {
	via, err := c.storageConnection()
	if err != nil {
		return nil, err
	}
	return newResource(via, "CSINode", "csinodes", newOf[storagev1.CSINode], newOf[storagev1.CSINodeList]), nil
}

// VolumeAttachments say which volumes each node has. They are the cluster's.
func (c *Client) VolumeAttachments() (*Resource[*storagev1.VolumeAttachment, *storagev1.VolumeAttachmentList], error) {
	via, err := c.storageConnection()
	if err != nil {
		return nil, err
	}
	return newResource(via, "VolumeAttachment", "volumeattachments",
		newOf[storagev1.VolumeAttachment], newOf[storagev1.VolumeAttachmentList]), nil
}

// storageConnection reaches what belongs to the cluster of the storage group.
func (c *Client) storageConnection() (connection, error) {
	via, err := c.connect("/apis", storagev1.SchemeGroupVersion, storagev1.AddToScheme)
	via.namespace = ""
	return via, err
}

// VolumeLimitExceeded says why the node cannot have these volumes, of CSI drivers, beside those that it has; "" when it can. It
// goes by what the drivers say of the node, and by what is attached there.
func VolumeLimitExceeded(node *corev1.Node, limits *storagev1.CSINode, volumes []*corev1.PersistentVolume) string {
	attached := map[string]bool{}
	for _, volume := range node.Status.VolumesAttached {
		attached[string(volume.Name)] = true
	}
	for _, driver := range limits.Spec.Drivers {
		if driver.Allocatable == nil || driver.Allocatable.Count == nil {
			continue
		}
		// The name is the attach-detach controller's: pkg/volume/util, GetUniqueVolumeName.
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
			return fmt.Sprintf("%d more of driver %s, of which it can attach %d and has %d", additional, driver.Name, limit, attachedCount)
		}
	}
	return ""
}
