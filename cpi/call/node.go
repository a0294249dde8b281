package call

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/kube"
)

// A node that falls silent may be off, or only cut off: then its machines still run, and write to their
// disks. So nothing counts as stopped because its node does not answer. It does when its Pod is gone: the
// kubelet has confirmed that, or the operator has said that the node is off, with the taint
// node.kubernetes.io/out-of-service or by deleting the node, and Kubernetes has removed the Pods.

// ErrNodeUnreachable means that the node does not answer, and the operator has not said that it is off.
var ErrNodeUnreachable = errors.New("what runs there may still write to its disks")

func nodeUnreachableError(node string, since time.Time) *Error {
	return CloudError.Errorf("node %s has not answered since %s: %w. Bring it back; or, once it is certain that it is off, "+
		"run `kubectl taint nodes %s %s=nodeshutdown:NoExecute`. Then repeat this",
		node, since.UTC().Format(time.RFC3339), ErrNodeUnreachable, node, corev1.TaintNodeOutOfService)
}

// NodeOutOfService reports whether the operator has said that this node is off, and fails when it is silent and
// he has not.
func NodeOutOfService(found []*corev1.Node) (outOfService bool, err error) {
	if len(found) == 0 {
		return true, nil
	}
	if kube.OutOfService(found[0]) {
		return true, nil
	}
	if since, unreachable := kube.NodeLost(found[0]); unreachable {
		return false, nodeUnreachableError(found[0].Name, since)
	}
	return false, nil
}

// PodNodeOutOfService is NodeState of the Pod's node. A Pod that is ready costs no request: Kubernetes declares those
// of a silent node not ready.
func (c *Call) PodNodeOutOfService(pod *corev1.Pod) (outOfService bool, err error) {
	if kube.Ready(pod) || pod.Spec.NodeName == "" {
		return false, nil
	}
	found, err := c.Nodes.List(c.Ctx, kube.Selection{Name: pod.Spec.NodeName})
	if err != nil {
		return false, fmt.Errorf("the node of %s: %w", pod.Name, err)
	}
	return NodeOutOfService(found.Items)
}

// CheckNodeAvailable fails when the machine's node is off or silent: nothing can be done to the machine then, but to
// delete it.
func (c *Call) CheckNodeAvailable(vmPod *corev1.Pod) error {
	outOfService, err := c.PodNodeOutOfService(vmPod)
	if err == nil && outOfService {
		return CloudError.Errorf("VM %s does not run: its node %s is out of service; recreate it", vmPod.Name, vmPod.Spec.NodeName)
	}
	return err
}

// WatchNode is the sentinel for what only this node's kubelet can bring about: it fails when the node falls
// silent. One that is out of service is waited for: Kubernetes is about to remove its Pods. A Pod without a node depends on none.
func (c *Call) WatchNode(node string) []DependencyWatch {
	if node == "" {
		return nil
	}
	return []DependencyWatch{func(ctx context.Context) error {
		return c.Nodes.Wait(ctx, kube.Selection{Name: node}, nil, func(found []*corev1.Node) (bool, error) {
			_, err := NodeOutOfService(found)
			return false, err
		})
	}}
}
