package disk

import (
	"encoding/json"
	"slices"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// Update gives a detached disk this size and these cloud_properties, and returns its CID: the same
// when the claim can be changed in place, the one of a new disk with the data when it cannot. The same
// call again returns the same, however far the first one came.
func (s *Session) Update(cid string, sizeMiB int64, properties json.RawMessage) (string, error) {
	if err := checkSize(sizeMiB); err != nil {
		return "", err
	}
	wanted, err := parseProperties(properties)
	if err != nil {
		return "", err
	}
	successor, err := successorName(cid, sizeMiB, wanted)
	if err != nil {
		return "", err
	}
	claim, err := s.Claim(cid)
	if call.DiskNotFound.In(err) {
		return successor, s.replaced(cid, successor, err)
	}
	if err != nil {
		return "", err
	}
	s.About(s.Claims.Reference(claim))
	inPlace, err := s.changesInPlace(claim, sizeMiB, wanted)
	if err != nil {
		return "", err
	}
	if inPlace {
		return cid, s.updateInPlace(claim, sizeMiB, wanted)
	}
	if claim, err = s.takeOver(claim); err != nil {
		return "", err
	}
	s.Detail("to disk " + successor)
	return successor, s.copyDisk(claim, wanted.disk(successor, s.Director, sizeMiB))
}

// successorName is the CID of the disk that a claim is copied to: the same for the same request.
func successorName(cid string, sizeMiB int64, wanted Properties) (string, error) {
	request, err := json.Marshal([]any{cid, sizeMiB, wanted.StorageClass, wanted.VolumeMode, wanted.AccessModes, wanted.Filesystem})
	return manifest.DiskName(uuid.NewSHA1(uuid.Nil, request).String()), err
}

// replaced reports that an earlier call with this request has replaced the disk, or else that it is not
// there.
func (s *Session) replaced(cid, successor string, notFound error) error {
	found, err := s.Claim(successor)
	switch {
	case call.DiskNotFound.In(err):
		return notFound
	case err != nil:
		return err
	case found.Annotations[manifest.AnnotationCopyOf] != cid || found.Labels[manifest.LabelCopy] == manifest.CopyUnproven:
		return notFound
	}
	return nil
}

// changesInPlace reports whether the claim can become what is asked for. A claim keeps the class that it
// has when none is asked for.
func (s *Session) changesInPlace(claim *corev1.PersistentVolumeClaim, sizeMiB int64, wanted Properties) (bool, error) {
	has, err := SizeOf(claim)
	if err != nil {
		return false, err
	}
	class := claim.Spec.StorageClassName
	switch {
	case wanted.StorageClass != "" && (class == nil || *class != wanted.StorageClass),
		wanted.VolumeMode != manifest.VolumeMode(claim),
		!sameModes(wanted.AccessModes, claim.Spec.AccessModes),
		(wanted.Attach == manifest.AttachBind) != manifest.IsDirectory(claim),
		wanted.Filesystem != claim.Annotations[manifest.AnnotationFilesystem],
		sizeMiB < has:
		return false, nil
	case sizeMiB == has:
		return true, nil
	case !kube.Bound(claim): // nothing is there yet that could be expanded
		return false, nil
	}
	err = s.expandable(claim)
	if call.NotSupported.In(err) {
		return false, nil
	}
	return err == nil, err
}

func sameModes(some, others []corev1.PersistentVolumeAccessMode) bool {
	return slices.Equal(slices.Compact(slices.Sorted(slices.Values(some))), slices.Compact(slices.Sorted(slices.Values(others))))
}

// updateInPlace sets labels and annotations, and expands the claim.
func (s *Session) updateInPlace(claim *corev1.PersistentVolumeClaim, sizeMiB int64, wanted Properties) error {
	if err := s.unattached(claim); err != nil {
		return err
	}
	claim, err := s.SettleCopy(claim)
	if err != nil {
		return err
	}
	has, err := SizeOf(claim)
	if err != nil {
		return err
	}
	patch, err := wanted.disk(claim.Name, s.Director, has).Relabel(claim)
	if err != nil {
		return err
	}
	if patch != nil {
		if claim, err = s.Claims.Patch(s.Ctx, claim.Name, patch); err != nil {
			return err
		}
	}
	if !kube.Bound(claim) {
		return nil
	}
	return s.expandClaim(claim, has, sizeMiB)
}
