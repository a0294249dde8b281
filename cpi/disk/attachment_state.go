package disk

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/kube"
)

// AttachmentState is what an attachment Pod says about its disk. docs/development/architecture.md has the diagram.
type AttachmentState string

// States of an attachment Pod that is not being deleted.
const (
	AttachmentAbsent    AttachmentState = "Absent"    // there is no Pod
	AttachmentGated     AttachmentState = "Gated"     // the Pod waits to become the owner of the disk
	AttachmentPending   AttachmentState = "Pending"   // its program never ran
	AttachmentPreparing AttachmentState = "Preparing" // its program runs, and has not published the disk
	AttachmentFailed    AttachmentState = "Failed"    // its program reported why it cannot publish the disk; the kubelet starts it again
	AttachmentPublished AttachmentState = "Published" // the VM can use the disk
	AttachmentChecking  AttachmentState = "Checking"  // an exclusivity check runs
	AttachmentUnready   AttachmentState = "Unready"   // an exclusivity check runs; the program was killed, or has not published the disk
	AttachmentChecked   AttachmentState = "Checked"   // an exclusivity check passed: the VM can no longer open the disk
	AttachmentKilled    AttachmentState = "Killed"    // its program was killed, and does not run: the VM may use the disk
	AttachmentLost      AttachmentState = "Lost"      // the Pod is finished, for example evicted: the VM may use the disk
	AttachmentRejected  AttachmentState = "Rejected"  // the Pod is finished, and its program never ran
)

// States of an attachment Pod that is being deleted, and is not Lost or Rejected.
const (
	AttachmentCanceled  AttachmentState = "Canceled"  // its program never ran
	AttachmentCanceling AttachmentState = "Canceling" // its program runs, has not published the disk, and is about to exit
	AttachmentWaiting   AttachmentState = "Waiting"   // its program waits until the disk is free
	AttachmentStopped   AttachmentState = "Stopped"   // its program failed or was killed, and does not run
	AttachmentReleasing AttachmentState = "Releasing" // an exclusivity check passed, and the program is about to exit
	AttachmentReleased  AttachmentState = "Released"  // an exclusivity check passed, and the program has ended
	AttachmentExited    AttachmentState = "Exited"    // its program exited, because the disk is free
)

// IsDeleted reports whether the Pod is being deleted. A lost Pod may be, too.
func (s AttachmentState) IsDeleted() bool {
	return slices.Contains([]AttachmentState{
		AttachmentCanceled, AttachmentCanceling, AttachmentWaiting, AttachmentStopped,
		AttachmentReleasing, AttachmentReleased, AttachmentExited,
	}, s)
}

// IsFinished reports whether the Pod is finished, although its program did not exit by itself.
func (s AttachmentState) IsFinished() bool { return s == AttachmentLost || s == AttachmentRejected }

// IsChecking reports whether an exclusivity check runs.
func (s AttachmentState) IsChecking() bool { return s == AttachmentChecking || s == AttachmentUnready }

// IsUnstarted reports whether the program never ran, and the Pod is not being deleted.
func (s AttachmentState) IsUnstarted() bool { return s == AttachmentGated || s == AttachmentPending }

// IsGuarded reports whether the VM cannot have the disk with this Pod, or the program runs, and waits until it does not. In other states,
// the VM may have the disk, unless the program failed in its first run, before it published the disk.
func (s AttachmentState) IsGuarded() bool {
	return !slices.Contains([]AttachmentState{
		AttachmentFailed, AttachmentKilled, AttachmentUnready, AttachmentLost, AttachmentStopped,
	}, s)
}

// HasPublished reports whether the program published the disk and still runs: an attach_disk may have succeeded with the Pod.
func (s AttachmentState) HasPublished() bool {
	return slices.Contains([]AttachmentState{AttachmentPublished, AttachmentChecking, AttachmentChecked, AttachmentWaiting}, s)
}

// IsReleased reports whether an exclusivity check passed before the Pod was deleted: detach_disk has released the disk.
func (s AttachmentState) IsReleased() bool {
	return s == AttachmentReleasing || s == AttachmentReleased
}

// HasExited reports whether the program of a deleted Pod ended while the disk was free: by itself, which it does only then, or after an
// exclusivity check passed.
func (s AttachmentState) HasExited() bool { return s == AttachmentReleased || s == AttachmentExited }

// HasEnded reports whether the program of the Pod never runs again.
func (s AttachmentState) HasEnded() bool { return s.IsFinished() || s.HasExited() }

// StateOf returns the state of the attachment Pod. A zero Pod is absent.
func StateOf(attachment manifest.AttachmentPod) AttachmentState {
	if attachment.Pod == nil {
		return AttachmentAbsent
	}
	program := manifest.OwnContainerStatus(attachment.Pod)
	passed := slices.ContainsFunc(attachment.Status.EphemeralContainerStatuses, passedSince(lastStart(program)))
	if attachment.DeletionTimestamp != nil {
		return stateOfDeleted(attachment, program, passed)
	}
	check := manifest.LatestExclusivityCheck(attachment)
	checking := check != "" && kube.EphemeralTermination(attachment.Pod, check) == nil
	ready := kube.IsReady(attachment.Pod) && program.State.Running != nil
	switch {
	case kube.IsFinished(attachment.Pod):
		return stateOfFinished(program)
	case checking && ready:
		return AttachmentChecking
	case checking:
		return AttachmentUnready
	case passed:
		return AttachmentChecked
	case attachment.IsGated():
		return AttachmentGated
	case !kube.HasRun(program):
		return AttachmentPending
	case ready:
		return AttachmentPublished
	case program.State.Running != nil:
		return AttachmentPreparing
	case AttachmentFailure(attachment) != "":
		return AttachmentFailed
	}
	return AttachmentKilled
}

func stateOfDeleted(attachment manifest.AttachmentPod, program corev1.ContainerStatus, passed bool) AttachmentState {
	// The program exits with 0 only when the disk is free. The kubelet does not start it again, and removes the volume and the Pod later.
	exited := program.State.Terminated != nil && program.State.Terminated.ExitCode == 0
	switch {
	case passed && (exited || kube.IsFinished(attachment.Pod)):
		return AttachmentReleased
	case passed:
		return AttachmentReleasing
	case exited:
		return AttachmentExited
	case kube.IsFinished(attachment.Pod):
		return stateOfFinished(program)
	case !kube.HasRun(program):
		return AttachmentCanceled
	case program.State.Running == nil:
		return AttachmentStopped
	case kube.IsReady(attachment.Pod):
		return AttachmentWaiting
	}
	return AttachmentCanceling
}

func stateOfFinished(program corev1.ContainerStatus) AttachmentState {
	if kube.HasRun(program) {
		return AttachmentLost
	}
	return AttachmentRejected
}

// passedSince returns a function that reports whether the container ran an exclusivity check that passed after the program's last start,
// and so removed the device node: the program publishes the disk again when it starts.
func passedSince(start metav1.Time) func(corev1.ContainerStatus) bool {
	return func(container corev1.ContainerStatus) bool {
		check := container.State.Terminated
		return manifest.IsExclusivityCheck(container.Name) && check != nil && check.ExitCode == 0 && !check.FinishedAt.Before(&start)
	}
}

// lastStart returns when the program started for the last time, or zero.
func lastStart(program corev1.ContainerStatus) metav1.Time {
	switch {
	case program.State.Running != nil:
		return program.State.Running.StartedAt
	case program.State.Terminated != nil:
		return program.State.Terminated.StartedAt
	case program.LastTerminationState.Terminated != nil:
		return program.LastTerminationState.Terminated.StartedAt
	}
	return metav1.Time{}
}

// exitOfGo is the exit status of a Go program that panics, or cannot get memory or threads. It is also api.ExitUsage.
const exitOfGo = 2

// LostCheck reports whether the latest exclusivity check ended without a result. It may have removed the device node before.
func LostCheck(attachment manifest.AttachmentPod) bool {
	check := kube.EphemeralTermination(attachment.Pod, manifest.LatestExclusivityCheck(attachment))
	return check != nil && (kube.IsAborted(check) || check.ExitCode == exitOfGo)
}

// AttachmentFailure returns the termination message of the attachment's program if it failed with a reason and is not running
// again, else "".
func AttachmentFailure(attachment manifest.AttachmentPod) string {
	status := manifest.OwnContainerStatus(attachment.Pod)
	if status.State.Running != nil {
		return ""
	}
	terminated := cmp.Or(status.State.Terminated, status.LastTerminationState.Terminated) // of the latest run
	if terminated == nil || terminated.ExitCode != api.ExitFailed {
		return ""
	}
	return manifest.TerminationMessage(terminated)
}
