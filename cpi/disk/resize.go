package disk

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// Resize grows a detached disk to this many MiB: it expands the claim, and the next attachment
// grows the image file and the filesystem. What cannot grow in place is NotSupported, before anything
// is changed; the director then copies the disk.
func (s *Session) Resize(cid string, sizeMiB int64) error {
	if err := checkSize(sizeMiB); err != nil {
		return err
	}
	claim, err := s.Claim(cid)
	if err != nil {
		return err
	}
	s.About(s.Claims.Reference(claim))
	s.Detail(fmt.Sprintf("to %d MiB", sizeMiB))
	if err := s.unattached(claim); err != nil {
		return err
	}
	return s.growClaim(claim, sizeMiB)
}

// growClaim refuses what cannot be done in place, and expands the claim.
func (s *Session) growClaim(claim *corev1.PersistentVolumeClaim, sizeMiB int64) error {
	has, err := SizeOf(claim)
	if err != nil {
		return err
	}
	switch {
	case sizeMiB < has:
		return shrinks(claim, has, sizeMiB)
	case !kube.Bound(claim):
		return call.NotSupported.Errorf("disk %s has no volume yet and cannot be resized before it was attached once", claim.Name)
	}
	if sizeMiB > has {
		if err := s.expandable(claim); err != nil {
			return err
		}
	}
	return s.expandClaim(claim, has, sizeMiB)
}

func shrinks(claim *corev1.PersistentVolumeClaim, has, sizeMiB int64) error {
	return call.NotSupported.Errorf("disk %s has %d MiB and cannot shrink to %d MiB in place", claim.Name, has, sizeMiB)
}

// expandClaim is the converge step of growth: it asks for the room, waits for it, and only then notes the
// size, so that a disk whose volume could not be expanded stays what it was. Repeated after a crash, each
// step finds what was done; of a disk that has the size already nothing is changed.
func (s *Session) expandClaim(claim *corev1.PersistentVolumeClaim, has, sizeMiB int64) error {
	wanted := *resource.NewQuantity(manifest.ClaimMiB(sizeMiB, manifest.VolumeMode(claim), manifest.IsDirectory(claim))<<20, resource.BinarySI)
	if sizeMiB > has {
		asking, err := s.requestRoom(claim, wanted)
		if err != nil {
			return err
		}
		claim = asking
	}
	claim, err := s.awaitGrowth(claim, wanted)
	if err != nil {
		return err
	}
	return s.noteSize(claim, sizeMiB)
}

// noteSize notes the size, unless another call has noted a larger one meanwhile.
func (s *Session) noteSize(claim *corev1.PersistentVolumeClaim, sizeMiB int64) error {
	for {
		has, err := SizeOf(claim)
		switch {
		case err != nil || has == sizeMiB:
			return err
		case has > sizeMiB:
			return shrinks(claim, has, sizeMiB)
		}
		patch, err := manifest.NoteSize(claim, sizeMiB)
		if err != nil {
			return err
		}
		if _, err = s.Claims.Patch(s.Ctx, claim.Name, patch); !errors.Is(err, kube.ErrConflict) {
			return err
		}
		if claim, err = s.Claim(claim.Name); err != nil {
			return err
		}
	}
}

// requestRoom makes the claim ask for this much, unless a VM has got the disk since the call has looked. A larger request,
// which an expansion that failed or whose call was killed has left, is taken back only where Kubernetes allows it: to more
// than the volume has.
func (s *Session) requestRoom(claim *corev1.PersistentVolumeClaim, wanted resource.Quantity) (*corev1.PersistentVolumeClaim, error) {
	for {
		asked, has := claim.Spec.Resources.Requests[corev1.ResourceStorage], claim.Status.Capacity[corev1.ResourceStorage]
		if wanted.Cmp(asked) == 0 || wanted.Cmp(asked) < 0 && wanted.Cmp(has) <= 0 {
			return claim, nil
		}
		patch, err := manifest.RequestStorage(claim, wanted)
		if err != nil {
			return nil, err
		}
		asking, err := s.Claims.Patch(s.Ctx, claim.Name, patch)
		if !errors.Is(err, kube.ErrConflict) {
			return asking, err
		}
		if claim, err = s.Claim(claim.Name); err != nil {
			return nil, err
		}
		if err := s.unattached(claim); err != nil {
			return nil, err
		}
	}
}

// expandable refuses a claim whose class cannot expand it.
func (s *Session) expandable(claim *corev1.PersistentVolumeClaim) error {
	name := ""
	if claim.Spec.StorageClassName != nil {
		name = *claim.Spec.StorageClassName
	}
	if name == "" {
		return call.NotSupported.Errorf("disk %s has no StorageClass that could expand it", claim.Name)
	}
	classes, err := s.StorageClasses()
	if err != nil {
		return err
	}
	class, err := classes.Get(s.Ctx, name)
	if errors.Is(err, kube.ErrNotFound) {
		return call.NotSupported.Errorf("disk %s cannot be expanded: its StorageClass %s is gone", claim.Name, name)
	}
	if err != nil {
		return err
	}
	if class.AllowVolumeExpansion == nil || !*class.AllowVolumeExpansion {
		return call.NotSupported.Errorf("StorageClass %s of disk %s does not allow volume expansion (allowVolumeExpansion)", name, claim.Name)
	}
	return nil
}

// awaitGrowth waits until the volume has this size, or until all that is left is the node's part, which
// the kubelet does when the disk is attached next. The status may still be about an earlier request: most
// resizers tell of which size it is. It returns the claim as it is then.
func (s *Session) awaitGrowth(claim *corev1.PersistentVolumeClaim, wanted resource.Quantity) (*corev1.PersistentVolumeClaim, error) {
	last := "nothing was reported"
	which := kube.Selection{Name: claim.Name}
	err := s.Claims.Await(s.Ctx, which, kube.At(claim), func(present []*corev1.PersistentVolumeClaim) (bool, error) {
		if len(present) == 0 {
			return false, call.NoDisk(claim.Name)
		}
		claim = present[0]
		status := claim.Status
		if has := status.Capacity[corev1.ResourceStorage]; has.Cmp(wanted) >= 0 {
			return true, nil
		}
		order := 0 // of the size that the status is about to the one wanted
		if about, told := status.AllocatedResources[corev1.ResourceStorage]; told {
			order = about.Cmp(wanted)
		}
		for _, condition := range status.Conditions {
			if condition.Type == corev1.PersistentVolumeClaimFileSystemResizePending && condition.Status == corev1.ConditionTrue && order >= 0 {
				return true, nil
			}
			last = string(condition.Type) + ": " + condition.Message
		}
		switch phase := status.AllocatedResourceStatuses[corev1.ResourceStorage]; {
		case phase == corev1.PersistentVolumeClaimNodeResizePending && order >= 0:
			return true, nil
		case phase == corev1.PersistentVolumeClaimControllerResizeInfeasible && order == 0:
			return false, call.CloudError.Errorf("the volume of disk %s cannot be expanded to %s: %s", claim.Name, wanted.String(), last)
		}
		return false, nil
	})
	if errors.Is(err, kube.ErrTimeout) {
		err = call.Explained(err, "the volume of disk "+claim.Name+" was not expanded to "+wanted.String()+": "+last)
	}
	return claim, err
}
