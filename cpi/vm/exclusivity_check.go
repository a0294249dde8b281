package vm

import (
	"cmp"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/disk"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/kube"
)

// maxExclusivityChecks limits the exclusivity checks in one attachment Pod: each ephemeral container stays in the Pod with its program,
// and etcd accepts requests of at most 1.5 MiB. A later detach_disk deletes the Pod, which exits when the disk is free.
const maxExclusivityChecks = 40

// startExclusivityCheck adds an ephemeral container that runs the exclusivity check to the attachment Pod, and returns its name.
func (p hotPlugStrategy) startExclusivityCheck(attachment manifest.AttachmentPod) (string, error) {
	nodeImage, err := p.s.NodeImageReference()
	if err != nil {
		return "", err
	}
	container := manifest.ExclusivityCheckContainer(attachment, nodeImage)
	updated, err := p.s.Pods.Patch(p.s.Ctx, attachment.Name, manifest.ExclusivityCheckPatch(attachment, container), "ephemeralcontainers")
	if err != nil {
		return "", err
	}
	*attachment.Pod = *updated
	return container.Name, nil
}

// errDiskNotPublished reports that an exclusivity check has no result, because the attachment Pod did not publish its disk: its
// program is still starting, or fails.
var errDiskNotPublished = errors.New("the attachment Pod has not published the disk")

// evaluateExclusivityCheck reports whether the exclusivity check in the container containerName passed. With an empty
// containerName, no check is possible, and the result is true. If the disk is in use, the error lists its users. Any other failure has
// the code of the program on the node. If the container was killed, or has no result, the error is call.ErrResultLost.
func evaluateExclusivityCheck(attachment manifest.AttachmentPod, containerName string) (bool, error) {
	if containerName == "" {
		return true, nil
	}
	terminated := kube.EphemeralTermination(attachment.Pod, containerName)
	if terminated == nil {
		return false, nil
	}
	switch {
	case terminated.ExitCode == 0:
		return true, nil
	case terminated.ExitCode == api.ExitNotPublished:
		return false, fmt.Errorf("%w: %w", errDiskNotPublished, call.ErrResultLost)
	case kube.IsAborted(terminated):
		return false, call.CodeHelperInterrupted.Errorf("%w: container %s of Pod %s was interrupted: %s", call.ErrResultLost, containerName,
			attachment.Name, cmp.Or(manifest.TerminationMessage(terminated), terminated.Reason))
	}
	result := manifest.NodeResult(terminated)
	if result.Code != call.CodeDiskInUse.Name {
		return false, call.CodeDiskCheckFailed.Errorf("cannot detach disk %s from VM %s: the exclusivity check failed: %s",
			attachment.Disk(), attachment.VM(), cmp.Or(result.String(), fmt.Sprintf("exit status %d", terminated.ExitCode)))
	}
	return false, call.CodeDiskInUse.Errorf("cannot detach disk %s: it is still in use in VM %s: %s",
		attachment.Disk(), attachment.VM(), result.Message)
}

// waitForExclusivityCheck waits until the last exclusivity check of the attachment Pod ends, or the Pod is deleted.
func (s *Session) waitForExclusivityCheck(attachment manifest.AttachmentPod) error {
	dependencies := append(
		s.WatchNode(attachment.Spec.NodeName),
		s.WatchContainerStart(attachment.Name, manifest.LatestExclusivityCheck(attachment)),
	)
	return s.WaitForPod(dependencies, attachment.Pod, func(current *corev1.Pod) (bool, error) {
		return current == nil || !disk.StateOf(attachment).IsChecking(), nil
	})
}
