package preflight

import (
	"context"
	"strings"

	"bosh-kubernetes-cpi/cpi/disk"
	"bosh-kubernetes-cpi/cpi/manifest"
)

// inspectAttachments checks the attachment Pods and the PVCs of disks in use, of all directors.
func inspectAttachments(ctx context.Context, s *clusterState) finding {
	pvcs, err := s.pvcs(ctx)
	if err != nil {
		return errorFinding(err, callPermissionsFile)
	}
	pods, err := s.pods(ctx)
	if err != nil {
		return errorFinding(err, callPermissionsFile)
	}
	var lost, terminating, deleted []string
	for _, pvc := range pvcs {
		if !manifest.HasRole(pvc, manifest.RoleDisk) || manifest.VMOf(pvc) == "" {
			continue
		}
		vmPod := manifest.FindVMPod(pods, manifest.VMOf(pvc))
		attachment := manifest.FindAttachment(pods, pvc.Name)
		if pvc.DeletionTimestamp != nil {
			deleted = append(deleted, pvc.Name+" of VM "+manifest.VMOf(pvc)+" (PersistentVolume "+pvc.Spec.VolumeName+")")
		}
		switch isLost, isTerminating := disk.InspectAttachment(vmPod, attachment); {
		case isLost:
			lost = append(lost, pvc.Name+" of VM "+vmPod.Name)
		case isTerminating:
			terminating = append(terminating, pvc.Name+" of VM "+vmPod.Name)
		}
	}
	if len(deleted) > 0 {
		return fail("disks in use with PVCs that are being deleted: "+strings.Join(deleted, ", "),
			"to keep their data, set the reclaim policy of these PersistentVolumes to Retain (docs/guides/disks.md#deleted-pvcs)")
	}
	var messages []string
	if len(lost) > 0 {
		messages = append(messages, "disks in use without an attachment Pod: "+strings.Join(lost, ", "))
	}
	if len(terminating) > 0 {
		messages = append(messages, "disks in use with an attachment Pod that is being deleted: "+strings.Join(terminating, ", "))
	}
	if len(messages) > 0 {
		return fail(strings.Join(messages, "; "), "find out what deletes or evicts attachment Pods (docs/guides/disks.md); "+
			"the next call for the VM recreates deleted ones, as does kubectl bosh collect --confirm")
	}
	return pass("all disks in use have their attachment Pods")
}
