package kube

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// StorageClasses returns the cluster's StorageClasses. Each call creates a connection, because few programs need this API group.
func (c *Client) StorageClasses() *Resource[*storagev1.StorageClass, *storagev1.StorageClassList] {
	return newResource[storagev1.StorageClass, storagev1.StorageClassList](c.storageConnection(), "StorageClass", "storageclasses")
}

// VolumeAttributesClasses returns the cluster's VolumeAttributesClasses.
func (c *Client) VolumeAttributesClasses() *Resource[*storagev1.VolumeAttributesClass, *storagev1.VolumeAttributesClassList] {
	return newResource[storagev1.VolumeAttributesClass, storagev1.VolumeAttributesClassList](
		c.storageConnection(), "VolumeAttributesClass", "volumeattributesclasses")
}

// CSIDrivers returns the cluster's CSIDrivers.
func (c *Client) CSIDrivers() *Resource[*storagev1.CSIDriver, *storagev1.CSIDriverList] {
	return newResource[storagev1.CSIDriver, storagev1.CSIDriverList](c.storageConnection(), "CSIDriver", "csidrivers")
}

// CSINodes returns the cluster's CSINodes, which contain the volume limits of each node's drivers.
func (c *Client) CSINodes() *Resource[*storagev1.CSINode, *storagev1.CSINodeList] {
	return newResource[storagev1.CSINode, storagev1.CSINodeList](c.storageConnection(), "CSINode", "csinodes")
}

// VolumeAttachments returns the cluster's VolumeAttachments, which show the volumes of each node.
func (c *Client) VolumeAttachments() *Resource[*storagev1.VolumeAttachment, *storagev1.VolumeAttachmentList] {
	return newResource[storagev1.VolumeAttachment, storagev1.VolumeAttachmentList](
		c.storageConnection(), "VolumeAttachment", "volumeattachments")
}

// storageConnection returns a connection for the cluster-scoped kinds of storage.k8s.io.
func (c *Client) storageConnection() connection {
	conn := c.connect("/apis", storagev1.SchemeGroupVersion, storagev1.AddToScheme)
	conn.namespace = ""
	return conn
}

// VolumeLimitExceeded returns an explanation if attaching the CSI volumes to the node would exceed its volume limit. Otherwise it
// returns "". It compares the limits in the CSINode with the attached volumes in the node's status.
func VolumeLimitExceeded(node *corev1.Node, limits *storagev1.CSINode, volumes []*corev1.PersistentVolume) string {
	attached := map[string]bool{}
	for _, volume := range node.Status.VolumesAttached {
		attached[string(volume.Name)] = true
	}
	for _, driver := range limits.Spec.Drivers {
		if driver.Allocatable == nil || driver.Allocatable.Count == nil {
			continue
		}
		// The attach-detach controller uses this name: GetUniqueVolumeName in Kubernetes' pkg/volume/util.
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
			return fmt.Sprintf("driver %s has %d of %d volumes attached and would need %d more", driver.Name, attachedCount, limit, additional)
		}
	}
	return ""
}
