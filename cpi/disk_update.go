package cpi

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/cloudfoundry/bosh-cpi-go/apiv1"
	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// updateDisk gives a detached disk this size and these cloud_properties, and answers its CID: the same
// when the claim can be changed in place, the one of a new disk with the data when it cannot. The same
// call again answers the same, however far the first one came.
func (c *call) updateDisk(cid apiv1.DiskCID, sizeMiB int64, properties apiv1.CloudPropsImpl) (apiv1.DiskCID, error) {
	if sizeMiB <= 0 {
		return apiv1.DiskCID{}, invalid("disk size %d must be greater than 0 (MiB)", sizeMiB)
	}
	wanted, err := parseDiskProperties(properties.RawMessage)
	if err != nil {
		return apiv1.DiskCID{}, err
	}
	successor, err := successorName(cid.AsString(), sizeMiB, wanted)
	if err != nil {
		return apiv1.DiskCID{}, err
	}
	cluster, err := c.cluster()
	if err != nil {
		return apiv1.DiskCID{}, err
	}
	claim, err := c.claim(cluster, cid.AsString())
	if isDiskNotFound(err) {
		return apiv1.NewDiskCID(successor), c.replaced(cluster, cid.AsString(), successor, err)
	}
	if err != nil {
		return apiv1.DiskCID{}, err
	}
	inPlace, err := c.changesInPlace(cluster, claim, sizeMiB, wanted)
	if err != nil {
		return apiv1.DiskCID{}, err
	}
	if inPlace {
		return cid, c.updateInPlace(cluster, claim, sizeMiB, wanted)
	}
	if err := c.takeOver(cluster, claim); err != nil {
		return apiv1.DiskCID{}, err
	}
	return apiv1.NewDiskCID(successor), c.copyDisk(cluster, claim, wanted.disk(successor, c.director, sizeMiB))
}

// successorName is the CID of the disk that a claim is copied to: the same for the same request.
func successorName(cid string, sizeMiB int64, wanted DiskProperties) (string, error) {
	request, err := json.Marshal([]any{cid, sizeMiB, wanted.StorageClass, wanted.VolumeMode, wanted.AccessModes, wanted.Filesystem})
	return manifest.DiskName(uuid.NewSHA1(uuid.Nil, request).String()), err
}

// replaced reports that an earlier call with this request has replaced the disk, or else that it is not
// there.
func (c *call) replaced(cluster *kube.Client, cid, successor string, notFound error) error {
	found, err := c.claim(cluster, successor)
	switch {
	case isDiskNotFound(err):
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
func (c *call) changesInPlace(cluster *kube.Client, claim *corev1.PersistentVolumeClaim, sizeMiB int64, wanted DiskProperties) (bool, error) {
	has, err := sizeOf(claim)
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
	err = c.expandable(cluster, claim)
	var known *Error
	if errors.As(err, &known) && known.kind == typeNotSupported {
		return false, nil
	}
	return err == nil, err
}

func sameModes(some, others []corev1.PersistentVolumeAccessMode) bool {
	return slices.Equal(slices.Compact(slices.Sorted(slices.Values(some))), slices.Compact(slices.Sorted(slices.Values(others))))
}

// updateInPlace sets labels and annotations, and expands the claim.
func (c *call) updateInPlace(cluster *kube.Client, claim *corev1.PersistentVolumeClaim, sizeMiB int64, wanted DiskProperties) error {
	if err := c.unattached(cluster, claim); err != nil {
		return err
	}
	if err := c.settleCopy(cluster, claim); err != nil {
		return err
	}
	has, err := sizeOf(claim)
	if err != nil {
		return err
	}
	if patch, err := wanted.describe(claim); err != nil {
		return err
	} else if patch != nil {
		if claim, err = cluster.Claims.Patch(c.ctx, claim.Name, types.MergePatchType, patch); err != nil {
			return err
		}
	}
	if !kube.Bound(claim) {
		return nil
	}
	return c.expandClaim(cluster, claim, has, sizeMiB)
}

// describe is the patch that gives the claim the labels and annotations asked for; nil when it has them.
func (p DiskProperties) describe(claim *corev1.PersistentVolumeClaim) ([]byte, error) {
	labels, annotations := maps.Clone(claim.Labels), maps.Clone(claim.Annotations)
	maps.Copy(labels, p.Labels)
	maps.Copy(annotations, p.Annotations)
	if maps.Equal(labels, claim.Labels) && maps.Equal(annotations, claim.Annotations) {
		return nil, nil
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"labels": p.Labels, "annotations": p.Annotations}})
}
