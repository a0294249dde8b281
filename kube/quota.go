package kube

import corev1 "k8s.io/api/core/v1"

// ResourceQuotas returns the namespace's ResourceQuotas.
func (c *Client) ResourceQuotas() *Resource[*corev1.ResourceQuota, *corev1.ResourceQuotaList] {
	return newResource[corev1.ResourceQuota, corev1.ResourceQuotaList](c.Pods.connection, "ResourceQuota", "resourcequotas")
}

// LimitRanges returns the namespace's LimitRanges.
func (c *Client) LimitRanges() *Resource[*corev1.LimitRange, *corev1.LimitRangeList] {
	return newResource[corev1.LimitRange, corev1.LimitRangeList](c.Pods.connection, "LimitRange", "limitranges")
}

// ConfigMaps returns the namespace's ConfigMaps.
func (c *Client) ConfigMaps() *Resource[*corev1.ConfigMap, *corev1.ConfigMapList] {
	return newResource[corev1.ConfigMap, corev1.ConfigMapList](c.Pods.connection, "ConfigMap", "configmaps")
}

// PodsInAllNamespaces returns the Pods of all namespaces.
func (c *Client) PodsInAllNamespaces() *Resource[*corev1.Pod, *corev1.PodList] {
	return newResource[corev1.Pod, corev1.PodList](c.Nodes.connection, "Pod", "pods")
}
