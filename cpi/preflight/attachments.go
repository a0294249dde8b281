package preflight

import (
	"context"
	"strings"

	"bosh-kubernetes-cpi/cpi/disk"
	"bosh-kubernetes-cpi/kube/manifest"
)

// lookAtAttachments looks at the disks that machines use, of whatever director.
func lookAtAttachments(ctx context.Context, s *subject) finding {
	claims, err := s.claims(ctx)
	if err != nil {
		return failed(err, rightsOfCalls)
	}
	pods, err := s.pods(ctx)
	if err != nil {
		return failed(err, rightsOfCalls)
	}
	var lost, leaving []string
	for _, claim := range claims {
		if claim.Labels[manifest.LabelRole] != manifest.RoleDisk || claim.Labels[manifest.LabelVM] == "" {
			continue
		}
		vm, attachment := pod(pods, claim.Labels[manifest.LabelVM]), pod(pods, manifest.AttachmentName(claim.Name))
		switch isLost, isLeaving := disk.Unheld(vm, attachment); {
		case isLost:
			lost = append(lost, claim.Name+" of VM "+vm.Name)
		case isLeaving:
			leaving = append(leaving, claim.Name+" of VM "+vm.Name)
		}
	}
	var said []string
	if len(lost) > 0 {
		said = append(said, "taken away from used disks: "+strings.Join(lost, ", "))
	}
	if len(leaving) > 0 {
		said = append(said, "told to end while their disks are used: "+strings.Join(leaving, ", "))
	}
	if len(said) > 0 {
		return fails(strings.Join(said, "; "), "see what deletes or evicts attachments (docs/disks.md); "+
			"cpi -collect -confirm makes those again that were taken away, and so does the VM's next call")
	}
	return ok("every disk that a VM uses has its attachment")
}
