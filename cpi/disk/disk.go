// Package disk serves the methods about persistent disks: a disk is a PersistentVolumeClaim.
//
// It knows neither machines nor networks. What it has to know of who uses a disk it reads from the disk's
// attachment, a Pod whose name says which disk it is for, and from the claim itself; see owner.go.
package disk

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// Session serves one request about disks.
type Session struct {
	*call.Call
	// StartTimeout bounds how long the Pod that copies a disk may take to start, as long as an attachment may.
	StartTimeout time.Duration
}

// cleanupSession is the session with time of its own, as call.Call.Detached.
func (s *Session) cleanupSession() (*Session, context.CancelFunc) {
	detached, cancel := s.Call.Detached(call.CleanupTimeout)
	return &Session{Call: detached, StartTimeout: s.StartTimeout}, cancel
}

// Create makes a claim and does not wait for its volume: a class that binds at the first consumer
// binds when the disk is attached. Its size is in MiB. The VM that the disk is for does not matter:
// a class that binds at once takes no wish for a zone from a claim. (Provisioners read the scheduler's annotation
// volume.kubernetes.io/selected-node then, too, but it is the scheduler's to set, and not all of them do.)
func (s *Session) Create(sizeMiB int64, properties json.RawMessage, _ *string) (cid string, err error) {
	if err := checkSize(sizeMiB); err != nil {
		return "", err
	}
	desired, err := parseProperties(properties)
	if err != nil {
		return "", err
	}
	disk := desired.buildDisk(manifest.DiskName(uuid.NewString()), s.Director, sizeMiB)
	disk.Namespace = s.Namespace
	// The name is new, so one that exists is this call's own, made by a request whose answer was lost.
	pvc, err := s.PVCs.Create(s.Ctx, disk.PVC())
	switch {
	case err == nil:
		s.SetSubject(s.PVCs.Reference(pvc))
	case !errors.Is(err, kube.ErrExists):
		return "", err
	}
	return disk.Name, nil
}

// GetPVC returns a disk that is there and stays; any other is DiskNotFound.
func (s *Session) GetPVC(cid string) (*corev1.PersistentVolumeClaim, error) {
	pvc, err := s.PVCs.Get(s.Ctx, cid)
	if errors.Is(err, kube.ErrNotFound) {
		return nil, call.NoDisk(cid)
	}
	if err == nil && (pvc.DeletionTimestamp != nil || !isDisk(pvc)) {
		return nil, call.NoDisk(cid)
	}
	return pvc, err
}

// isDisk tells what create_disk has made from the cluster's other claims.
func isDisk(pvc *corev1.PersistentVolumeClaim) bool {
	return pvc.Labels[manifest.LabelRole] == manifest.RoleDisk
}

// Has reports whether there is such a disk. A disk whose PVC somebody deletes while a VM has it exists as long as that VM
// uses it: the director would otherwise offer to forget it.
func (s *Session) Has(cid string) (bool, error) {
	pvc, err := s.PVCs.Get(s.Ctx, cid)
	if errors.Is(err, kube.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return isDisk(pvc) && (pvc.DeletionTimestamp == nil || pvc.Labels[manifest.LabelVM] != ""), nil
}

// Delete removes a disk that no VM uses, and waits until its claim is gone. The claim is deleted only as it was when
// that was found out: attach_disk changes it. So does the deletion itself, whose answer may have been lost.
func (s *Session) Delete(cid string) error {
	for deletionSent := false; ; deletionSent = true {
		pvc, err := s.PVCs.Get(s.Ctx, cid)
		switch {
		case deletionSent && errors.Is(err, kube.ErrNotFound):
			return nil
		case errors.Is(err, kube.ErrNotFound) || err == nil && !isDisk(pvc):
			return call.NoDisk(cid)
		case err != nil:
			return err
		}
		s.SetSubject(s.PVCs.Reference(pvc))
		if err := s.checkUnattached(pvc); err != nil {
			return err
		}
		if pvc, err = s.ResolveCopy(pvc); err != nil {
			return err
		}
		err = s.PVCs.DeleteUnchanged(s.Ctx, pvc)
		if err == nil {
			return s.PVCs.WaitDeleted(s.Ctx, pvc)
		}
		if !errors.Is(err, kube.ErrConflict) {
			return err
		}
	}
}

// SetMetadata puts the director's metadata on the disk's claim. One that is being deleted is no disk any more.
func (s *Session) SetMetadata(cid string, metadata map[string]any) error {
	described, err := manifest.BuildMetadata(metadata)
	if err != nil {
		return err
	}
	pvc, err := call.PatchMetadata(s.Ctx, s.PVCs, cid, described)
	if errors.Is(err, kube.ErrNotFound) || err == nil && pvc.DeletionTimestamp != nil {
		return call.NoDisk(cid)
	}
	return err
}
