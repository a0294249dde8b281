package preflight

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"bosh-kubernetes-cpi/kube"
)

func lookAtNodes(ctx context.Context, s *subject) finding {
	nodes, err := s.nodes(ctx)
	if err != nil {
		return failed(err, rightsOfCalls)
	}
	usable := 0
	for _, node := range nodes {
		if takesMachines(node) {
			usable++
		}
	}
	said := fmt.Sprintf("%d of %d take machines", usable, len(nodes))
	if usable == 0 {
		return fails(said, "have a node with Linux that is ready and not cordoned (kubectl get nodes); an autoscaler may bring one")
	}
	return ok(said)
}

// takesMachines reports that the node is one for any machine, but for taints: those a machine may tolerate.
func takesMachines(node *corev1.Node) bool {
	if node.Spec.Unschedulable || node.Labels[corev1.LabelOSStable] == "windows" {
		return false
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// lookAtSlots counts how many Pods more the nodes take: a machine with disks needs room for their attachments on its node.
func lookAtSlots(ctx context.Context, s *subject) finding {
	nodes, err := s.nodes(ctx)
	if err != nil {
		return failed(err, rightsOfCalls)
	}
	pods, err := some(ctx, s.client.AllPods().Find, kube.Selection{Fields: "status.phase!=Succeeded,status.phase!=Failed"}, manyPods)
	if err != nil {
		return failed(err, rightsOfChecks)
	}
	if len(pods) == manyPods {
		return unknown(fmt.Sprintf("the cluster has more than %d Pods, which are too many to count here", manyPods), "kubectl describe nodes")
	}
	used := map[string]int64{}
	for _, pod := range pods {
		used[pod.Spec.NodeName]++
	}
	left := map[string]int64{}
	for _, node := range nodes {
		if takesMachines(node) {
			left[node.Name] = max(0, node.Status.Allocatable.Pods().Value()-used[node.Name])
		}
	}
	return fewest(left, "Pods",
		"add nodes, or have their kubelets take more Pods (maxPods): a VM takes one, and one more for each of its disks")
}

// fewest judges by the node that has the least room left.
func fewest(left map[string]int64, what, advice string) finding {
	node, least, sum := "", int64(-1), int64(0)
	for name, n := range left {
		sum += n
		if least < 0 || n < least || n == least && name < node {
			node, least = name, n
		}
	}
	said := fmt.Sprintf("room for %d %s more on %d nodes, for %d on %s", sum, what, len(left), least, node)
	switch {
	case len(left) == 0:
		return unknown("no node takes machines", "see nodes")
	case sum == 0:
		return fails(said, advice)
	case least < few:
		return warns(said, advice)
	}
	return ok(said)
}

// lookAtAttachLimits counts how many volumes more of the default class's driver the nodes take.
func lookAtAttachLimits(ctx context.Context, s *subject, class *storagev1.StorageClass) finding {
	found, used, err := s.volumes(ctx, class.Provisioner)
	if err != nil {
		return failed(err, rightsOfChecks)
	}
	known := false
	left := map[string]int64{}
	for _, node := range found {
		for _, driver := range node.Spec.Drivers {
			if driver.Name != class.Provisioner {
				continue
			}
			known = true
			if driver.Allocatable != nil && driver.Allocatable.Count != nil {
				left[node.Name] = max(0, int64(*driver.Allocatable.Count)-used[node.Name])
			}
		}
	}
	switch {
	case !known:
		return warns("no node says that it has "+class.Provisioner,
			"look whether the driver's Pods run on the nodes; a provisioner that is no CSI driver has no limit there")
	case len(left) == 0:
		return ok(class.Provisioner + " has no limit")
	}
	return fewest(left, "volumes of "+class.Provisioner, "add nodes, or take ones that more volumes can be attached to")
}

// volumes returns what nodes say of their drivers, and how many of the driver's volumes each has.
func (s *subject) volumes(ctx context.Context, driver string) ([]*storagev1.CSINode, map[string]int64, error) {
	nodes, err := s.client.CSINodes()
	if err != nil {
		return nil, nil, err
	}
	found, err := some(ctx, nodes.Find, kube.Selection{}, manyObjects)
	if err != nil {
		return nil, nil, err
	}
	attachments, err := s.client.VolumeAttachments()
	if err != nil {
		return nil, nil, err
	}
	attached, err := some(ctx, attachments.Find, kube.Selection{}, manyObjects)
	used := map[string]int64{}
	for _, each := range attached {
		if each.Spec.Attacher == driver {
			used[each.Spec.NodeName]++
		}
	}
	return found, used, err
}
