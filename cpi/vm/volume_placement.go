package vm

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/agentsettings"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// volumePlacement places a VM on a node that can attach the volumes of its disks.
//
// A node can attach a limited number of volumes of each CSI driver. The scheduler counts the volumes of a Pod, but the disks of a
// VM are not volumes of the VM Pod. So volumePlacement checks the limit of the node that the scheduler chose, and reschedules the
// VM if necessary.
type volumePlacement struct {
	session  *Session
	volumes  []*corev1.PersistentVolume // volumes of the VM's disks
	rejected []string                   // nodes that the scheduler chose and that cannot attach the volumes, each with the reason
	// locations are the disks with volumes that are not accessible from all nodes, each with the labels of the nodes.
	locations []string
}

// ensureOnSuitableNode creates the VM Pod and its settings until the Pod is on a node that can attach the volumes. It deletes a Pod on
// another node, and excludes that node from the next attempt. It returns a Pod that it created together with a later error.
func (p *volumePlacement) ensureOnSuitableNode(vm manifest.VM, settings agentsettings.Files) (manifest.VMPod, error) {
	s := p.session
	vm.Namespace, vm.Call = s.Namespace, s.ID
	for {
		pod, err := s.strategy(vm.Recreate).ensurePod(vm)
		if err == nil {
			err = s.ensureSettingsSecret(vm, settings, pod)
		}
		if err != nil || len(p.volumes) == 0 {
			return pod, err
		}
		node, reason, err := s.checkVolumesAttachable(pod, p.volumes)
		if err != nil || reason == "" {
			return pod, err
		}
		s.Log.Info("the scheduled node cannot attach the disks of the VM; rescheduling", "vm", pod.Name, "node", node, "reason", reason)
		if deleted, err := s.deleteVMIfOwned(pod); err != nil || !deleted {
			return pod, err
		}
		p.rejected = append(p.rejected, node+": "+reason)
		vm.AvoidNode(node)
	}
}

// explain adds the rejected nodes to the error, if there are any. If no node matches the VM's placement, it adds the locations of the
// volumes.
func (p *volumePlacement) explain(err error) error {
	if errors.Is(err, errNoMatchingNode) && len(p.locations) > 0 {
		err = fmt.Errorf("%w; volumes of its disks: %s", err, strings.Join(p.locations, "; "))
	}
	if len(p.rejected) > 0 {
		err = fmt.Errorf("%w; nodes that cannot attach its disks: %s", err, strings.Join(p.rejected, "; "))
	}
	return err
}

// checkVolumesAttachable returns the node that the scheduler chose for the Pod, and the reason if that node cannot attach the
// volumes. The reason is "" if the node can attach them, if the limit is unknown, or if the VM already has the director's metadata:
// such a VM is in use, and must not be moved.
func (s *Session) checkVolumesAttachable(pod manifest.VMPod, volumes []*corev1.PersistentVolume) (node, reason string, err error) {
	scheduled := pod.Pod
	err = s.Pods.Wait(s.Ctx, kube.Selection{Name: pod.Name}, kube.ListOf(pod.Pod), func(present []*corev1.Pod) (bool, error) {
		if len(present) == 0 || present[0].UID != pod.UID {
			return true, nil
		}
		scheduled = present[0]
		return scheduled.Spec.NodeName != "" || kube.WaitsForNode(scheduled) || kube.HasUnboundPVC(scheduled), nil
	})
	node = scheduled.Spec.NodeName
	if err != nil || node == "" || manifest.HasMetadata(scheduled.Annotations) {
		return node, "", err
	}
	nodes, err := s.Nodes.List(s.Ctx, kube.Selection{Name: node})
	if err != nil || len(nodes.Items) == 0 {
		return node, "", err
	}
	limits, err := s.CSINodes().Get(s.Ctx, node)
	switch {
	case errors.Is(err, kube.ErrNotFound):
		return node, "", nil
	case errors.Is(err, kube.ErrDenied):
		s.Log.Warn("cannot read the volume limit of the node: the CPI's ClusterRole lacks `get` on csinodes", "error", err)
		return node, "", nil
	}
	return node, kube.VolumeLimitExceeded(nodes.Items[0], limits, volumes), err
}

// placeNearDisks adds the node affinity of the volumes of these disks to the VM, and returns the placement that checks the limits of
// nodes. The disks are a hint of the director: a disk without a volume gets one on the VM's node later, and attach_disk reports a
// disk that does not exist.
func (s *Session) placeNearDisks(vm *manifest.VM, disks []string) (*volumePlacement, error) {
	placement := &volumePlacement{session: s}
	for _, disk := range disks {
		pvc, err := s.PVCs.Get(s.Ctx, disk)
		if errors.Is(err, kube.ErrNotFound) || (err == nil && !kube.HasVolume(pvc)) {
			continue
		}
		if err != nil {
			return nil, err
		}
		volume, err := s.PVs.Get(s.Ctx, pvc.Spec.VolumeName)
		if err != nil {
			return nil, err
		}
		vm.AddVolumeAffinity(volume)
		if affinity := volume.Spec.NodeAffinity; affinity != nil && affinity.Required != nil {
			placement.locations = append(placement.locations,
				"the volume of disk "+disk+" is accessible only from nodes with "+kube.DescribeNodeSelector(affinity.Required))
		}
		if volume.Spec.CSI != nil {
			placement.volumes = append(placement.volumes, volume)
		}
	}
	return placement, nil
}
