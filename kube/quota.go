package kube

import corev1 "k8s.io/api/core/v1"

// What bounds the Pods and claims of a namespace, and what else is on its nodes. No call needs these: they are for a
// look at the cluster before any.

// ResourceQuotas are the namespace's.
func (c *Client) ResourceQuotas() *Resource[*corev1.ResourceQuota, *corev1.ResourceQuotaList] {
	return newResource(c.Pods.connection, "ResourceQuota", "resourcequotas", newOf[corev1.ResourceQuota], newOf[corev1.ResourceQuotaList])
}

// LimitRanges are the namespace's.
func (c *Client) LimitRanges() *Resource[*corev1.LimitRange, *corev1.LimitRangeList] {
	return newResource(c.Pods.connection, "LimitRange", "limitranges", newOf[corev1.LimitRange], newOf[corev1.LimitRangeList])
}

// PodsInAllNamespaces are those of all namespaces.
func (c *Client) PodsInAllNamespaces() *Resource[*corev1.Pod, *corev1.PodList] {
	return newResource(c.Nodes.connection, "Pod", "pods", newOf[corev1.Pod], newOf[corev1.PodList])
}
