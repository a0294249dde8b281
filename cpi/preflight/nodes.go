package preflight

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"bosh-kubernetes-cpi/kube"
)

func inspectNodes(ctx context.Context, s *clusterState) finding {
	nodes, err := s.nodes(ctx)
	if err != nil {
		return errorFinding(err, callRightsFile)
	}
	usable := 0
	for _, node := range nodes {
		if acceptsVMs(node) {
			usable++
		}
	}
	message := fmt.Sprintf("%d of %d take machines", usable, len(nodes))
	if usable == 0 {
		return fail(message, "have a node with Linux that is ready and not cordoned (kubectl get nodes); an autoscaler may bring one")
	}
	return pass(message)
}

// acceptsVMs reports that the node is one for any machine, but for taints: those a machine may tolerate.
func acceptsVMs(node *corev1.Node) bool {
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

// inspectPodSlots counts how many Pods more the nodes take: a machine with disks needs room for their attachments on its node.
func inspectPodSlots(ctx context.Context, s *clusterState) finding {
	nodes, err := s.nodes(ctx)
	if err != nil {
		return errorFinding(err, callRightsFile)
	}
	pods, err := listUpTo(
		ctx,
		s.client.PodsInAllNamespaces().Find,
		kube.Selection{Fields: "status.phase!=Succeeded,status.phase!=Failed"},
		maxPods,
	)
	if err != nil {
		return errorFinding(err, checkRightsFile)
	}
	if len(pods) == maxPods {
		return undetermined(fmt.Sprintf("the cluster has more than %d Pods, which are too many to count here", maxPods), "kubectl describe nodes")
	}
	used := map[string]int64{}
	for _, pod := range pods {
		used[pod.Spec.NodeName]++
	}
	remaining := map[string]int64{}
	for _, node := range nodes {
		if acceptsVMs(node) {
			remaining[node.Name] = max(0, node.Status.Allocatable.Pods().Value()-used[node.Name])
		}
	}
	return evaluateCapacity(remaining, "Pods",
		"add nodes, or have their kubelets take more Pods (maxPods): a VM takes one, and one more for each of its disks")
}

// evaluateCapacity judges by the node that has the least room left.
func evaluateCapacity(remaining map[string]int64, what, advice string) finding {
	node, least, sum := "", int64(-1), int64(0)
	for name, n := range remaining {
		sum += n
		if least < 0 || n < least || n == least && name < node {
			node, least = name, n
		}
	}
	message := fmt.Sprintf("room for %d %s more on %d nodes, for %d on %s", sum, what, len(remaining), least, node)
	switch {
	case len(remaining) == 0:
		return undetermined("no node takes machines", "see nodes")
	case sum == 0:
		return fail(message, advice)
	case least < lowCapacity:
		return warn(message, advice)
	}
	return pass(message)
}

// inspectAttachLimits counts how many volumes more of the default class's driver the nodes take.
func inspectAttachLimits(ctx context.Context, s *clusterState, storageClass *storagev1.StorageClass) finding {
	found, used, err := s.driverVolumes(ctx, storageClass.Provisioner)
	if err != nil {
		return errorFinding(err, checkRightsFile)
	}
	known := false
	remaining := map[string]int64{}
	for _, node := range found {
		for _, driver := range node.Spec.Drivers {
			if driver.Name != storageClass.Provisioner {
				continue
			}
			known = true
			if driver.Allocatable != nil && driver.Allocatable.Count != nil {
				remaining[node.Name] = max(0, int64(*driver.Allocatable.Count)-used[node.Name])
			}
		}
	}
	switch {
	case !known:
		return warn("no node says that it has "+storageClass.Provisioner,
			"look whether the driver's Pods run on the nodes; a provisioner that is no CSI driver has no limit there")
	case len(remaining) == 0:
		return pass(storageClass.Provisioner + " has no limit")
	}
	return evaluateCapacity(remaining, "volumes of "+storageClass.Provisioner, "add nodes, or take ones that more volumes can be attached to")
}

// driverVolumes returns what nodes say of their drivers, and how many of the driver's volumes each has.
func (s *clusterState) driverVolumes(ctx context.Context, driver string) ([]*storagev1.CSINode, map[string]int64, error) {
	nodes, err := s.client.CSINodes()
	if err != nil {
		return nil, nil, err
	}
	found, err := listUpTo(ctx, nodes.Find, kube.Selection{}, maxObjects)
	if err != nil {
		return nil, nil, err
	}
	attachments, err := s.client.VolumeAttachments()
	if err != nil {
		return nil, nil, err
	}
	attached, err := listUpTo(ctx, attachments.Find, kube.Selection{}, maxObjects)
	used := map[string]int64{}
	for _, each := range attached {
		if each.Spec.Attacher == driver {
			used[each.Spec.NodeName]++
		}
	}
	return found, used, err
}
