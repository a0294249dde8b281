package machine

import (
	"errors"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// Has reports whether there is such a VM. One whose Pod is made again when it is missing gets it.
func (s *Session) Has(vm string) (bool, error) {
	pod, err := s.Pods.Get(s.Ctx, vm)
	if err == nil && s.strategyOf(pod).stays(pod) {
		return pod.Labels[manifest.LabelRole] == manifest.RoleVM, nil
	}
	if err == nil || errors.Is(err, kube.ErrNotFound) {
		err = s.revive(vm)
	}
	if call.VMNotFound.In(err) {
		return false, nil
	}
	return err == nil, err
}

// SetMetadata puts the director's metadata on the machine's Pod, and where its next Pod has it from.
func (s *Session) SetMetadata(vm string, metadata map[string]any) error {
	described, err := manifest.Describe(metadata)
	if err != nil {
		return err
	}
	pod, err := call.PutMetadata(s.Ctx, s.Pods, vm, described)
	if errors.Is(err, kube.ErrNotFound) {
		if err := s.revive(vm); err != nil {
			return err
		}
		pod, err = call.PutMetadata(s.Ctx, s.Pods, vm, described)
	}
	if err != nil {
		return err
	}
	return s.strategyOf(pod).describe(pod, described)
}

// Disks lists the CIDs of the disks that are attached to the machine.
func (s *Session) Disks(vm string) ([]string, error) {
	machine, attachments, err := s.withAttachments(vm)
	if err != nil {
		return nil, err
	}
	for _, attachment := range attachments {
		if attachment.DeletionTimestamp != nil && machine.DeletionTimestamp == nil && !released(attachment) {
			s.warnOfEnd(attachment)
		}
	}
	return s.strategyOf(machine).held(machine, attachments)
}

// disksOf are the CIDs of the disks that these attach.
func disksOf(attachments []*corev1.Pod) []string {
	disks := []string{}
	for _, attachment := range attachments {
		disks = append(disks, attachment.Labels[manifest.LabelDisk])
	}
	return disks
}

// withAttachments returns the machine's Pod and those of its disks. A machine that is made again for each
// disk gets what it lacks of them.
func (s *Session) withAttachments(vm string) (machine *corev1.Pod, attachments []*corev1.Pod, err error) {
	for wait := kube.Turns(); ; wait(s.Ctx) {
		found, _, err := s.PodsOf(vm)
		if err != nil {
			return nil, nil, err
		}
		attachments := call.Attachments(found.Items)
		for _, machine := range call.Machines(found.Items) {
			if strategy := s.strategyOf(machine); strategy.stays(machine) && strategy.whole(machine, attachments) {
				return machine, attachments, nil
			}
		}
		if err := s.revive(vm); err != nil {
			return nil, nil, err
		}
	}
}
