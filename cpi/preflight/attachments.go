package preflight

import (
	"context"
	"strings"

	"bosh-kubernetes-cpi/cpi/disk"
	"bosh-kubernetes-cpi/kube/manifest"
)

// inspectAttachments looks at the disks that machines use, of whatever director.
func inspectAttachments(ctx context.Context, s *clusterState) finding {
	pvcs, err := s.pvcs(ctx)
	if err != nil {
		return errorFinding(err, callRightsFile)
	}
	pods, err := s.pods(ctx)
	if err != nil {
		return errorFinding(err, callRightsFile)
	}
	var lost, terminating []string
	for _, pvc := range pvcs {
		if pvc.Labels[manifest.LabelRole] != manifest.RoleDisk || pvc.Labels[manifest.LabelVM] == "" {
			continue
		}
		vmPod, attachment := findPod(pods, pvc.Labels[manifest.LabelVM]), findPod(pods, manifest.AttachmentName(pvc.Name))
		switch isLost, isTerminating := disk.InspectAttachment(vmPod, attachment); {
		case isLost:
			lost = append(lost, pvc.Name+" of VM "+vmPod.Name)
		case isTerminating:
			terminating = append(terminating, pvc.Name+" of VM "+vmPod.Name)
		}
	}
	var messages []string
	if len(lost) > 0 {
		messages = append(messages, "taken away from used disks: "+strings.Join(lost, ", "))
	}
	if len(terminating) > 0 {
		messages = append(messages, "told to end while their disks are used: "+strings.Join(terminating, ", "))
	}
	if len(messages) > 0 {
		return fail(strings.Join(messages, "; "), "see what deletes or evicts attachments (docs/disks.md); "+
			"cpi -collect -confirm makes those again that were taken away, and so does the VM's next call")
	}
	return pass("every disk that a VM uses has its attachment")
}
