package kube

import (
	storagev1 "k8s.io/api/storage/v1"
)

// StorageClasses are the cluster's. Few calls need them, so that their client is made when asked for.
func (c *Client) StorageClasses() (*Resource[*storagev1.StorageClass, *storagev1.StorageClassList], error) {
	via, err := c.connect("/apis", storagev1.SchemeGroupVersion, storagev1.AddToScheme)
	if err != nil {
		return nil, err
	}
	via.namespace = "" // they belong to the cluster
	return resource(via, "StorageClass", "storageclasses", newOf[storagev1.StorageClass], newOf[storagev1.StorageClassList]), nil
}
