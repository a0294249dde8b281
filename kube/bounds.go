package kube

import corev1 "k8s.io/api/core/v1"

// What bounds the Pods and claims of a namespace, and what else is on its nodes. No call needs these: they are for a
// look at the cluster before any.

// Quotas are the namespace's.
func (c *Client) Quotas() *Resource[*corev1.ResourceQuota, *corev1.ResourceQuotaList] {
	return resource(c.Pods.connection, "ResourceQuota", "resourcequotas", newOf[corev1.ResourceQuota], newOf[corev1.ResourceQuotaList])
}

// LimitRanges are the namespace's.
func (c *Client) LimitRanges() *Resource[*corev1.LimitRange, *corev1.LimitRangeList] {
	return resource(c.Pods.connection, "LimitRange", "limitranges", newOf[corev1.LimitRange], newOf[corev1.LimitRangeList])
}

// AllPods are those of all namespaces.
func (c *Client) AllPods() *Resource[*corev1.Pod, *corev1.PodList] {
	return resource(c.Nodes.connection, "Pod", "pods", newOf[corev1.Pod], newOf[corev1.PodList])
}
