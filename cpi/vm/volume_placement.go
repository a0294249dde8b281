package vm

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/agentsettings"
	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// A node can have only so many volumes of a CSI driver at a time. The scheduler counts those of a Pod's own volumes,
// and a machine's Pod has none of its disks: so what the scheduler has chosen for the machine is looked at once more.

// volumePlacement is how a machine comes to a node that can have its disks' volumes.
type volumePlacement struct {
	session  *Session
	volumes  []*corev1.PersistentVolume // of the disks that it is to get
	rejected []string                   // the nodes that were chosen and cannot have them, with the reason
}

// ensureOnSuitableNode is the session's, on a node that can have the volumes. Nodes that cannot are left to others.
func (p *volumePlacement) ensureOnSuitableNode(vm manifest.VM, settings agentsettings.Files) (*corev1.Pod, error) {
	s := p.session
	for {
		pod, err := s.ensurePodAndSettings(vm, settings)
		if err != nil || len(p.volumes) == 0 || vm.Recreate { // a machine that is made again for a disk has its volume
			return pod, err
		}
		node, reason, err := s.checkVolumesAttachable(pod, p.volumes)
		if err != nil || reason == "" {
			return pod, err
		}
		s.Log.Info("the node that was chosen cannot have the VM's disks", "vm", pod.Name, "node", node, "reason", reason)
		if gone, err := s.DeletePodIfOwned(pod, call.NeverKeep); err != nil || !gone {
			return pod, err
		}
		p.rejected = append(p.rejected, node+": "+reason)
		vm.AvoidNode(node)
	}
}

// explainRejectedNodes adds to an error which nodes were passed over.
func (p *volumePlacement) explainRejectedNodes(err error) error {
	if err == nil || len(p.rejected) == 0 {
		return err
	}
	return fmt.Errorf("%w; nodes that cannot have its disks: %s", err, strings.Join(p.rejected, "; "))
}

// checkVolumesAttachable returns the node that the scheduler has chosen for the Pod, and why the volumes cannot be attached there;
// "" when they can, or nothing is known. A machine that its director has named already stays where it is.
func (s *Session) checkVolumesAttachable(pod *corev1.Pod, volumes []*corev1.PersistentVolume) (node, reason string, err error) {
	chosen := pod
	err = s.Pods.Wait(s.Ctx, kube.Selection{Name: pod.Name}, kube.ListOf(pod), func(present []*corev1.Pod) (bool, error) {
		if len(present) == 0 || present[0].UID != pod.UID {
			return true, nil
		}
		chosen = present[0]
		return chosen.Spec.NodeName != "" || kube.WaitsForNode(chosen) || kube.HasUnboundPVC(chosen), nil
	})
	node = chosen.Spec.NodeName
	if err != nil || node == "" || manifest.HasMetadata(chosen.Annotations) {
		return node, "", err
	}
	nodes, err := s.Nodes.List(s.Ctx, kube.Selection{Name: node})
	if err != nil || len(nodes.Items) == 0 {
		return node, "", err
	}
	drivers, err := s.CSINodes()
	if err != nil {
		return node, "", err
	}
	limits, err := drivers.Get(s.Ctx, node)
	switch {
	case errors.Is(err, kube.ErrNotFound):
		return node, "", nil
	case errors.Is(err, kube.ErrRefused):
		s.Log.Warn("how many volumes a node can have is not known: the CPI's ClusterRole lacks `get` of csinodes", "error", err)
		return node, "", nil
	}
	return node, kube.VolumeLimitExceeded(nodes.Items[0], limits, volumes), err
}

// placeNearDisks makes the machine run where the disks that it is to get can be used. They are a hint: one
// that has no volume yet gets it where the machine is, and one that is gone is attach_disk's to report.
func (s *Session) placeNearDisks(vm *manifest.VM, disks []string) (*volumePlacement, error) {
	placement := &volumePlacement{session: s}
	for _, disk := range disks {
		pvc, err := s.PVCs.Get(s.Ctx, disk)
		if errors.Is(err, kube.ErrNotFound) || (err == nil && !kube.Bound(pvc)) {
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
		if volume.Spec.CSI != nil {
			placement.volumes = append(placement.volumes, volume)
		}
	}
	return placement, nil
}
