package cpi

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

// errNodeSilent: the node does not answer, and the operator has not said that it is off.
var errNodeSilent = errors.New("what runs there may still write to its disks")

func nodeSilent(node string, since time.Time) *Error {
	return typed(typeCloudError, "node %s has not answered since %s: %w. Bring it back; or, once it is certain that it is off, "+
		"run `kubectl taint nodes %s %s=nodeshutdown:NoExecute`. Then repeat this",
		node, since.UTC().Format(time.RFC3339), errNodeSilent, node, corev1.TaintNodeOutOfService)
}

// nodeState reports whether the operator has said that this node is off, and fails when it is silent and
// he has not.
func nodeState(found []*corev1.Node) (off bool, err error) {
	if len(found) == 0 {
		return true, nil
	}
	if kube.OutOfService(found[0]) {
		return true, nil
	}
	if since, silent := kube.Silent(found[0]); silent {
		return false, nodeSilent(found[0].Name, since)
	}
	return false, nil
}

// nodeOff is nodeState of the Pod's node. A Pod that is ready costs no request: Kubernetes declares those
// of a silent node not ready.
func (c *call) nodeOff(cluster *kube.Client, pod *corev1.Pod) (off bool, err error) {
	if kube.Ready(pod) || pod.Spec.NodeName == "" {
		return false, nil
	}
	found, err := cluster.Nodes.List(c.ctx, kube.Selection{Name: pod.Spec.NodeName})
	if err != nil {
		return false, fmt.Errorf("the node of %s: %w", pod.Name, err)
	}
	return nodeState(found.Items)
}

// onNode fails when the machine's node is off or silent: nothing can be done to the machine then, but to
// delete it.
func (c *call) onNode(cluster *kube.Client, machine *corev1.Pod) error {
	off, err := c.nodeOff(cluster, machine)
	if err == nil && off {
		return typed(typeCloudError, "VM %s does not run: its node %s is out of service; recreate it", machine.Name, machine.Spec.NodeName)
	}
	return err
}

// answers is the sentinel for what only this node's kubelet can bring about. One that is out of service
// is waited for: Kubernetes is about to remove its Pods. A Pod without a node depends on none.
func (c *call) answers(cluster *kube.Client, node string) []sentinel {
	if node == "" {
		return nil
	}
	return []sentinel{func(ctx context.Context) error {
		return cluster.Nodes.Await(ctx, kube.Selection{Name: node}, nil, func(found []*corev1.Node) (bool, error) {
			_, err := nodeState(found)
			return false, err
		})
	}}
}

// awaitGone waits until exactly this Pod is gone, unless its node falls silent.
func (c *call) awaitGone(cluster *kube.Client, doomed *corev1.Pod) error {
	return c.awaitUnless(cluster, c.answers(cluster, doomed.Spec.NodeName), kube.Selection{Name: doomed.Name}, nil, func(present []*corev1.Pod) (bool, error) {
		return len(present) == 0 || present[0].UID != doomed.UID, nil
	})
}

// endPod deletes exactly this Pod, and waits until its node has stopped it.
func (c *call) endPod(cluster *kube.Client, pod *corev1.Pod) error {
	if err := cluster.Pods.Delete(c.ctx, pod); err != nil {
		return err
	}
	return c.awaitGone(cluster, pod)
}
