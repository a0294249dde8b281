package kube

import corev1 "k8s.io/api/core/v1"

// ResourceQuotas returns the namespace's ResourceQuotas.
func (c *Client) ResourceQuotas() *Resource[*corev1.ResourceQuota, *corev1.ResourceQuotaList] {
	return newResource(c.Pods.connection, "ResourceQuota", "resourcequotas", newOf[corev1.ResourceQuota], newOf[corev1.ResourceQuotaList])
}

// LimitRanges returns the namespace's LimitRanges.
func (c *Client) LimitRanges() *Resource[*corev1.LimitRange, *corev1.LimitRangeList] {
	return newResource(c.Pods.connection, "LimitRange", "limitranges", newOf[corev1.LimitRange], newOf[corev1.LimitRangeList])
}

// PodsInAllNamespaces returns the Pods of all namespaces.
func (c *Client) PodsInAllNamespaces() *Resource[*corev1.Pod, *corev1.PodList] {
	return newResource(c.Nodes.connection, "Pod", "pods", newOf[corev1.Pod], newOf[corev1.PodList])
}
