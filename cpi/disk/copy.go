package disk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// copyDisk makes a successor of the disk, with its data, and proves the copy. The disk itself stays as it
// is until the director has named the successor, so that it is there whatever becomes of this call's
// answer; see settleCopy.
//
// Each step finds what an earlier call has done: the disk is marked with its successor's name, the
// successor's claim tells whether its data is proven, and the Pod between them goes on without the call.
func (s *Session) copyDisk(claim *corev1.PersistentVolumeClaim, wanted manifest.Disk) error {
	if err := s.copyable(claim, wanted); err != nil {
		return err
	}
	begun := claim.Annotations[manifest.AnnotationCopiedTo] != wanted.Name
	if begun {
		if err := s.abandonCopy(claim); err != nil {
			return err
		}
		if err := s.Annotate(claim.Name, manifest.AnnotationCopiedTo, &wanted.Name); err != nil {
			return err
		}
	}
	successor, err := s.bringSuccessor(claim, wanted)
	if err == nil && successor.Labels[manifest.LabelCopy] == manifest.CopyUnproven {
		err = s.fillSuccessor(claim, successor)
	}
	if err != nil {
		return errors.Join(err, s.undoOwnCopy(claim, wanted.Name, begun))
	}
	return s.endCopy(claim.Name)
}

// undoOwnCopy undoes what this call has begun, or gone on with, of a copy that failed. What a repeated call goes on
// with now stays, and so does a copy that is proven: another call has answered its name. begun tells that the copy
// was this call's from the start.
func (s *Session) undoOwnCopy(claim *corev1.PersistentVolumeClaim, successor string, begun bool) error {
	undo, cancel := s.detached()
	defer cancel()
	pod, err := undo.Pods.Get(undo.Ctx, manifest.AttachmentName(claim.Name))
	switch {
	case errors.Is(err, kube.ErrNotFound):
		if !begun {
			return nil
		}
	case err != nil:
		return err
	case !IsCopy(pod):
		return nil
	default:
		if mine, err := undo.EndOwn(pod); !mine || err != nil {
			return err
		}
	}
	found, err := undo.Claim(successor)
	if err == nil && found.Labels[manifest.LabelCopy] != manifest.CopyUnproven {
		return nil
	}
	if err != nil && !call.DiskNotFound.In(err) {
		return err
	}
	return undo.undoCopy(claim, successor)
}

// copyable refuses, before anything is changed, a disk that is attached or cannot be read, and a class that does not
// exist.
func (s *Session) copyable(claim *corev1.PersistentVolumeClaim, wanted manifest.Disk) error {
	holder, err := s.Pods.Get(s.Ctx, manifest.AttachmentName(claim.Name))
	switch {
	case errors.Is(err, kube.ErrNotFound):
		if err := s.FreeFor(claim, ""); err != nil {
			return err
		}
	case err != nil:
		return err
	case IsCopy(holder) && (holder.Annotations[manifest.AnnotationCopiedTo] == wanted.Name || !copyRuns(holder)):
	case IsCopy(holder):
		return CopyingError(holder)
	case holder.DeletionTimestamp != nil:
		return call.CloudError.Errorf("disk %s is still being released in VM %s", claim.Name, holder.Labels[manifest.LabelVM])
	default:
		return AttachedError(holder)
	}
	if err := readable(claim); err != nil {
		return err
	}
	if wanted.StorageClass == nil {
		return nil
	}
	classes, err := s.StorageClasses()
	if err != nil {
		return err
	}
	_, err = classes.Get(s.Ctx, *wanted.StorageClass)
	if errors.Is(err, kube.ErrNotFound) {
		return call.Invalid("cloud_properties.storage_class: the cluster has no StorageClass %s", *wanted.StorageClass)
	}
	return err
}

type claimPlan = kube.Plan[*corev1.PersistentVolumeClaim]

// bringSuccessor makes the successor's claim, of the disk's own class when no other is asked for.
func (s *Session) bringSuccessor(claim *corev1.PersistentVolumeClaim, wanted manifest.Disk) (*corev1.PersistentVolumeClaim, error) {
	wanted.Namespace = s.Namespace
	wanted.Snapshot = "" // its content is the disk's
	wanted.StorageClass = cmp.Or(wanted.StorageClass, claim.Spec.StorageClassName)
	err := s.Claims.Converge(s.Ctx, wanted.Name, func(left *corev1.PersistentVolumeClaim, exists bool) (plan claimPlan, err error) {
		if exists && left.Annotations[manifest.AnnotationCopyOf] != claim.Name {
			return plan, call.CloudError.Errorf("claim %s is in the way: it is no copy of disk %s", wanted.Name, claim.Name)
		}
		plan.Create = wanted.Successor(claim)
		return plan, nil
	})
	if err != nil {
		return nil, err
	}
	return s.Claims.Get(s.Ctx, wanted.Name)
}

// readable refuses a disk that has a volume, and data in it, that cannot be had now: it is no empty disk.
func readable(claim *corev1.PersistentVolumeClaim) error {
	if kube.Bound(claim) || kube.Binding(claim) || kube.NeverBound(claim) {
		return nil
	}
	return call.CloudError.Errorf("disk %s cannot be read, nothing was copied: its claim is %s although it has the volume %s. "+
		"Bring that volume back (kubectl describe pvc %s)", claim.Name, claim.Status.Phase, claim.Spec.VolumeName, claim.Name)
}

// fillSuccessor copies the data and marks the successor as proven. A disk that never had a volume has no data.
func (s *Session) fillSuccessor(claim, successor *corev1.PersistentVolumeClaim) error {
	if !kube.NeverBound(claim) {
		machine, own, err := s.machineFor(claim)
		if err != nil {
			return err
		}
		wanted := manifest.Copy{Old: claim, New: successor, Machine: machine, Director: s.Director, Call: s.ID()}
		if own {
			wanted.Node = machine.Spec.NodeName
		}
		pod, err := s.bringCopy(wanted.Pod())
		if err != nil {
			return err
		}
		if err := s.awaitCopy(pod); err != nil {
			return err
		}
	}
	return s.labelCopy(successor.Name, new(manifest.CopyProven))
}

// machineFor returns a VM whose image has what the copy needs: the one of the disk's own instance, or
// else any other. own tells that it is the former: what is copied has to be where that one can reach it.
func (s *Session) machineFor(claim *corev1.PersistentVolumeClaim) (machine *corev1.Pod, own bool, err error) {
	machines := kube.Selection{Labels: manifest.OfDirector(s.Director) + "," + manifest.LabelRole + "=" + manifest.RoleVM}
	instance := claim.Annotations[manifest.AnnotationInstanceID] // as set_disk_metadata has it
	found, ok, err := s.Pods.Find(s.Ctx, machines, func(pod *corev1.Pod) bool {
		if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
			return false
		}
		machine = cmp.Or(machine, pod)
		return instance == "" || pod.Annotations[manifest.AnnotationInstance] == instance
	})
	switch {
	case err != nil:
		return nil, false, err
	case ok:
		return found, instance != "", nil
	case machine == nil:
		return nil, false, call.NotSupported.Errorf("disk %s has to be copied, and no VM runs from whose image that could be done", claim.Name)
	}
	return machine, false, nil
}

// bringCopy makes the Pod, or returns the one that an earlier call has made. One that failed is replaced.
func (s *Session) bringCopy(wanted *corev1.Pod) (*corev1.Pod, error) {
	pod, made, err := s.BringHelper(wanted, func(left *corev1.Pod) (bool, error) {
		switch {
		case left.DeletionTimestamp != nil:
			return false, s.AwaitGone(left)
		case !IsCopy(left):
			return false, AttachedError(left)
		case failed(left) || !slices.Equal(left.OwnerReferences, wanted.OwnerReferences):
			return false, s.End(left)
		}
		return true, nil
	})
	if err != nil || made {
		return pod, err
	}
	return s.Adopt(pod)
}

func failed(pod *corev1.Pod) bool {
	over, well := manifest.Outcome(pod)
	return over && !well
}

// awaitCopy waits until the copy has ended well. It has to start as soon as an attachment would.
func (s *Session) awaitCopy(pod *corev1.Pod) error {
	disk := pod.Labels[manifest.LabelDisk]
	await := func(ctx context.Context, enough func(*corev1.Pod) bool) error {
		return s.Pods.Await(ctx, kube.Selection{Name: pod.Name}, kube.At(pod), func(present []*corev1.Pod) (bool, error) {
			if len(present) == 0 || present[0].UID != pod.UID || present[0].DeletionTimestamp != nil {
				return false, call.CloudError.Errorf("the copy of disk %s was ended by someone else", disk)
			}
			*pod = *present[0]
			over, well := manifest.Outcome(pod)
			if over && !well {
				return false, failedCopy(pod)
			}
			return over || enough(pod), nil
		})
	}
	starting, cancel := context.WithTimeout(s.Ctx, s.Start)
	defer cancel()
	if err := await(starting, func(pod *corev1.Pod) bool { return kube.HasRun(manifest.OwnStatus(pod)) }); err != nil {
		return s.ExplainTimeout(pod, err, "the copy of disk "+disk+" did not start")
	}
	err := await(s.Ctx, func(*corev1.Pod) bool { return false })
	return s.ExplainTimeout(pod, err, "disk "+disk+" was not copied in time (timeouts.update_disk)")
}

func failedCopy(pod *corev1.Pod) error {
	kind, why := call.CloudError, cmp.Or(pod.Status.Message, pod.Status.Reason)
	if ended := manifest.OwnStatus(pod).State.Terminated; ended != nil {
		why = cmp.Or(strings.TrimSpace(ended.Message), fmt.Sprintf("it ended with status %d (%s)", ended.ExitCode, ended.Reason))
		if ended.ExitCode == manifest.NoRoom {
			kind = call.NoDiskSpace
		}
	}
	return kind.Errorf("the copy failed, and disk %s is as it was: %s", pod.Labels[manifest.LabelDisk], why)
}
