package disk

import (
	"cmp"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// checkAttributesClass checks that the VolumeAttributesClass exists, and that the PVC can be changed to it. "" is the PVC's current class.
func (s *Session) checkAttributesClass(pvc manifest.DiskPVC, class string) error {
	if class == "" || class == pvc.AttributesClass() {
		return nil
	}
	if !kube.HasVolume(pvc.PVC) { // Kubernetes changes the class only of a volume
		return notInPlaceError(pvc, "volume_attributes_class", pvc.AttributesClass(), class)
	}
	return s.checkAttributesClassExists(class)
}

// checkAttributesClassExists returns an error if the cluster does not have the VolumeAttributesClass.
func (s *Session) checkAttributesClassExists(class string) error {
	_, err := s.VolumeAttributesClasses().Get(s.Ctx, class)
	if errors.Is(err, kube.ErrNotFound) {
		return call.InvalidPropertyf("cloud_properties.volume_attributes_class: VolumeAttributesClass %s not found; use an existing one", class)
	}
	return err
}

// changeAttributesClass requests the VolumeAttributesClass, and waits until the CSI driver applied it. If the driver cannot apply it,
// changeAttributesClass requests the previous class again: otherwise the driver would keep trying, and a retried call would not get a new
// result. A retry of a call that timed out resumes the change. The disk is usable at all times. The class "" is the current one.
func (s *Session) changeAttributesClass(pvc manifest.DiskPVC, class string) (manifest.DiskPVC, error) {
	if class == "" || !kube.HasVolume(pvc.PVC) {
		return pvc, nil
	}
	requested, err := s.patchUnattached(pvc, func(current manifest.DiskPVC) []byte {
		if current.AttributesClass() == class {
			return nil
		}
		return manifest.RequestAttributesClassPatch(current, &class)
	})
	if err != nil {
		return pvc, err
	}
	outdated := modification{}
	if pvc.AttributesClass() != class {
		outdated = modificationOf(pvc)
	}
	changed, err := s.waitForAttributesClass(requested, class, outdated)
	if call.CodeDiskModifyFailed.Is(err) {
		_, restoreErr := s.patchUnattached(changed, func(current manifest.DiskPVC) []byte {
			if current.AttributesClass() != class { // another call changed it
				return nil
			}
			return manifest.RequestAttributesClassPatch(current, current.Status.CurrentVolumeAttributesClassName)
		})
		err = errors.Join(err, restoreErr)
	}
	return changed, err
}

// waitForAttributesClass waits until the volume has the class. outdated is the report about an earlier request, which stays until the
// resizer reports about this one. The result is the current PVC.
func (s *Session) waitForAttributesClass(pvc manifest.DiskPVC, class string, outdated modification) (manifest.DiskPVC, error) {
	last := "no status was reported; check that the CSI driver supports VolumeAttributesClasses"
	pvc, err := s.waitFor(pvc, func(current manifest.DiskPVC) (bool, error) {
		applied, reported := current.Status.CurrentVolumeAttributesClassName, modificationOf(current)
		if applied != nil && *applied == class && reported == (modification{}) {
			return true, nil
		}
		if reported == outdated || reported.TargetVolumeAttributesClassName != class {
			return false, nil
		}
		outdated = modification{}
		last = cmp.Or(reported.message, string(reported.Status))
		if reported.Status == corev1.PersistentVolumeClaimModifyVolumeInfeasible {
			return false, call.CodeDiskModifyFailed.Errorf("cannot change disk %s to VolumeAttributesClass %s: %s; "+
				"use another class in cloud_properties.volume_attributes_class", pvc.Name, class, last)
		}
		return false, nil
	})
	if errors.Is(err, kube.ErrTimeout) {
		message := fmt.Sprintf("timed out changing disk %s to VolumeAttributesClass %s: %s", pvc.Name, class, last)
		err = call.CodeDiskModifyTimeout.Wrap(call.WithMessage(err, message), false)
	}
	return pvc, err
}

// modification is the last report of the resizer about a change of the class. It is zero after a successful change.
type modification struct {
	corev1.ModifyVolumeStatus
	message string // of the error
	seconds int64  // time of the error
}

func modificationOf(pvc manifest.DiskPVC) (reported modification) {
	if pvc.Status.ModifyVolumeStatus == nil {
		return reported
	}
	reported.ModifyVolumeStatus = *pvc.Status.ModifyVolumeStatus
	for _, condition := range pvc.Status.Conditions {
		if condition.Type == corev1.PersistentVolumeClaimVolumeModifyVolumeError {
			reported.message, reported.seconds = condition.Message, condition.LastProbeTime.Unix()
		}
	}
	return reported
}
