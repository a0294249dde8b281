package call

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// A node that does not report to the cluster may be off or only disconnected. VMs on a disconnected node still run and write to
// their disks. Therefore the CPI never assumes that the Pods of an unreachable node are stopped. A Pod is stopped only when it is
// gone from the API: either the kubelet confirmed that, or an operator declared the node to be off (with the taint
// node.kubernetes.io/out-of-service, or by deleting the Node) and Kubernetes removed the node's Pods.

// ErrNodeUnreachable reports that a node does not report to the cluster and was not declared to be off.
var ErrNodeUnreachable = errors.New("the node is unreachable, and its Pods may still be running and writing to their disks")

func nodeUnreachableError(node string, since time.Time) *Error {
	return CodeNodeUnreachable.Errorf("node %s has not reported since %s: %w; restore the node, or, if you are sure that it is off, "+
		"run `kubectl taint nodes %s %s=nodeshutdown:NoExecute`, then retry",
		node, since.UTC().Format(time.RFC3339), ErrNodeUnreachable, node, corev1.TaintNodeOutOfService)
}

// NodeOutOfService reports whether the node does not exist or was declared to be off. It returns an error if the node is
// unreachable and was not declared to be off. nodes is the list of nodes with its name: one or none.
func NodeOutOfService(nodes []*corev1.Node) (outOfService bool, err error) {
	if len(nodes) == 0 {
		return true, nil
	}
	if kube.IsOutOfService(nodes[0]) {
		return true, nil
	}
	if since, unreachable := kube.NodeLost(nodes[0]); unreachable {
		return false, nodeUnreachableError(nodes[0].Name, since)
	}
	return false, nil
}

// PodNodeOutOfService is NodeOutOfService for the node of the Pod. For a ready Pod it sends no request, because Kubernetes marks
// the Pods of an unreachable node as not ready.
func (c *Call) PodNodeOutOfService(pod *corev1.Pod) (outOfService bool, err error) {
	if kube.IsReady(pod) || pod.Spec.NodeName == "" {
		return false, nil
	}
	found, err := c.Nodes.List(c.Ctx, kube.Selection{Name: pod.Spec.NodeName})
	if err != nil {
		return false, fmt.Errorf("cannot read the node of Pod %s: %w", pod.Name, err)
	}
	return NodeOutOfService(found.Items)
}

// CheckNodeAvailable returns an error if the node of the VM is unreachable or out of service. Such a VM can only be deleted.
func (c *Call) CheckNodeAvailable(vmPod manifest.VMPod) error {
	outOfService, err := c.PodNodeOutOfService(vmPod.Pod)
	if err == nil && outOfService {
		return CodeNodeOutOfService.Errorf("VM %s is not running: its node %s is out of service; recreate the VM",
			vmPod.Name, vmPod.Spec.NodeName)
	}
	return err
}

// WatchNode returns a dependency watch for work of the node's kubelet. It fails if the node becomes unreachable. It does not fail
// if the node is out of service, because Kubernetes then removes the node's Pods. For an empty name, WatchNode returns no watch.
func (c *Call) WatchNode(node string) []DependencyWatch {
	if node == "" {
		return nil
	}
	return []DependencyWatch{func(ctx context.Context) error {
		return c.Nodes.Wait(ctx, kube.Selection{Name: node}, nil, func(nodes []*corev1.Node) (bool, error) {
			_, err := NodeOutOfService(nodes)
			return false, err
		})
	}}
}
