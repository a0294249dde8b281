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
		return errorFinding(err, callPermissionsFile)
	}
	usable := 0
	for _, node := range nodes {
		if acceptsVMs(node) {
			usable++
		}
	}
	message := fmt.Sprintf("%d of %d nodes accept VMs", usable, len(nodes))
	if usable == 0 {
		return fail(message, "add a Linux node that is ready and not cordoned (kubectl get nodes); an autoscaler may add one")
	}
	return pass(message)
}

// acceptsVMs reports whether VMs can be scheduled on the node. It ignores taints, which VMs may tolerate.
func acceptsVMs(node *corev1.Node) bool {
	return !node.Spec.Unschedulable && node.Labels[corev1.LabelOSStable] != "windows" && kube.NodeReady(node)
}

// inspectPodSlots reports for how many more Pods the nodes have capacity. Each disk of a VM requires an attachment Pod on its node.
func inspectPodSlots(ctx context.Context, s *clusterState) finding {
	nodes, err := s.nodes(ctx)
	if err != nil {
		return errorFinding(err, callPermissionsFile)
	}
	active := kube.Selection{Fields: "status.phase!=Succeeded,status.phase!=Failed"}
	pods, err := listUpTo(ctx, s.client.PodsInAllNamespaces().Find, active, maxPods)
	if err != nil {
		return errorFinding(err, checkPermissionsFile)
	}
	if len(pods) == maxPods {
		return undetermined(fmt.Sprintf("the cluster has more than %d Pods, too many to count", maxPods), "see kubectl describe nodes")
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
		"add nodes, or raise maxPods of their kubelets; a VM requires one Pod, and one more for each disk")
}

// evaluateCapacity evaluates the remaining capacity by node. It warns if one node has little capacity, and fails if all have none.
func evaluateCapacity(remaining map[string]int64, resource, remedy string) finding {
	node, least, sum := "", int64(-1), int64(0)
	for name, n := range remaining {
		sum += n
		if least < 0 || n < least || n == least && name < node {
			node, least = name, n
		}
	}
	message := fmt.Sprintf("capacity for %d more %s on %d nodes, for %d on %s", sum, resource, len(remaining), least, node)
	switch {
	case len(remaining) == 0:
		return undetermined("no node accepts VMs", "see nodes")
	case sum == 0:
		return fail(message, remedy)
	case least < lowCapacity:
		return warn(message, remedy)
	}
	return pass(message)
}

// inspectAttachLimits reports for how many more volumes of the default StorageClass's driver the nodes have capacity.
func inspectAttachLimits(ctx context.Context, s *clusterState, storageClass *storagev1.StorageClass) finding {
	found, used, err := s.driverVolumes(ctx, storageClass.Provisioner)
	if err != nil {
		return errorFinding(err, checkPermissionsFile)
	}
	nodes, err := s.nodes(ctx)
	if err != nil {
		return errorFinding(err, callPermissionsFile)
	}
	accepting := map[string]bool{}
	for _, node := range nodes {
		accepting[node.Name] = acceptsVMs(node)
	}
	known, limited := false, false
	remaining := map[string]int64{}
	for _, node := range found {
		for _, driver := range node.Spec.Drivers {
			if driver.Name != storageClass.Provisioner {
				continue
			}
			known = true
			if driver.Allocatable == nil || driver.Allocatable.Count == nil {
				continue
			}
			limited = true
			if accepting[node.Name] {
				remaining[node.Name] = max(0, int64(*driver.Allocatable.Count)-used[node.Name])
			}
		}
	}
	switch {
	case !known:
		return warn("no node reports the driver "+storageClass.Provisioner,
			"check that the driver's Pods run on the nodes; a provisioner that is not a CSI driver does not report a limit")
	case !limited:
		return pass(storageClass.Provisioner + " has no limit")
	}
	return evaluateCapacity(remaining, "volumes of "+storageClass.Provisioner, "add nodes, or use nodes with a higher volume limit")
}

// driverVolumes returns the CSINodes, and the number of the driver's volumes that are attached to each node.
func (s *clusterState) driverVolumes(ctx context.Context, driver string) ([]*storagev1.CSINode, map[string]int64, error) {
	found, err := listUpTo(ctx, s.client.CSINodes().Find, kube.Selection{}, maxObjects)
	if err != nil {
		return nil, nil, err
	}
	attached, err := listUpTo(ctx, s.client.VolumeAttachments().Find, kube.Selection{}, noLimit)
	used := map[string]int64{}
	for _, attachment := range attached {
		if attachment.Spec.Attacher == driver {
			used[attachment.Spec.NodeName]++
		}
	}
	return found, used, err
}
