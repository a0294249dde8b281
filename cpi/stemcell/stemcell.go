// Package stemcell implements the CPI methods about stemcells. A stemcell is a container image; the module's top-level package stemcell
// pushes and reads images.
package stemcell

import (
	"encoding/json"
	"errors"
	"os"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
	images "bosh-kubernetes-cpi/stemcell"
)

// Session serves one request about stemcells.
type Session struct {
	*call.Call
	Options images.Options
	// API is the api_version of the stemcell, or nil if the director does not send it.
	API *int
	// Connect creates the call's client for the cluster, unless it exists, and sends no request. Only deleting a heavy stemcell needs it.
	Connect func() error
}

func (s *Session) store() images.Store { return images.Store{Options: s.Options, Log: s.Log} }

// Create returns the CID of a stemcell, which is an image reference. For a heavy stemcell, it pushes the image, and the
// image of bosh-node. It sends no requests to the cluster.
func (s *Session) Create(image string, properties json.RawMessage) (string, error) {
	var cloudProperties images.Properties
	if err := json.Unmarshal(properties, &cloudProperties); err != nil {
		return "", call.CodeInvalidStemcell.Errorf("invalid cloud_properties of the stemcell: %w", err)
	}
	// An agent of an older stemcell does not support disk hints at runtime.
	if err := stemcellError(images.CheckAPIVersion(s.API)); err != nil {
		return "", err
	}
	if cloudProperties.IsLight() {
		cid, err := s.store().Pin(s.Ctx, cloudProperties)
		return cid, stemcellError(err)
	}
	if err := checkImage(image); err != nil {
		return "", err
	}
	s.EnsureNodeImage()
	cid, err := s.store().Push(s.Ctx, image, cloudProperties, map[string]string{manifest.LabelDirector: s.Director})
	return cid, stemcellError(err)
}

// checkImage rejects a stemcell without an image: its cloud properties have no reference, and its image file is missing or empty.
func checkImage(path string) error {
	stat, err := os.Stat(path)
	switch {
	case err != nil:
		return call.CodeInvalidStemcell.Errorf("cloud_properties.image_reference is missing, and the stemcell's image cannot be read: %w", err)
	case stat.Size() == 0:
		return call.CodeInvalidStemcell.Errorf("cloud_properties.image_reference is missing: the stemcell's image is empty, " +
			"as in a light stemcell; set cloud_properties.image_reference and cloud_properties.digest")
	}
	return nil
}

// stemcellError adds the code to an error of package images.
func stemcellError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, images.ErrNoRegistry):
		return call.CodeRegistryMissing.Errorf("cannot push the stemcell's root filesystem: %w; set stemcell.registry.repository to a "+
			"repository that the CPI can push to and the nodes can pull from, or convert the stemcell to a light one with "+
			"scripts/build-stemcell", err)
	}
	for _, known := range []struct {
		kind error
		code call.Code
	}{
		{images.ErrInvalid, call.CodeInvalidStemcell},
		{images.ErrFull, call.CodeRegistryFull},
		{images.ErrNotFound, call.CodeImageNotFound},
		{images.ErrDenied, call.CodeRegistryDenied},
		{images.ErrUntrusted, call.CodeRegistryUntrusted},
		{images.ErrDeleteUnsupported, call.CodeRegistryUndeletable},
	} {
		if errors.Is(err, known.kind) {
			return known.code.Wrap(err, false)
		}
	}
	return call.CodeRegistryFailed.Wrap(err, false)
}

// Delete deletes the image of a heavy stemcell from the registry, unless a VM uses it: the VM's node may have to pull it
// again. The CPI does not own the image of a light stemcell, and does not delete it.
func (s *Session) Delete(cid string) error {
	if !images.IsHeavy(cid) {
		return nil
	}
	if err := s.Connect(); err != nil {
		return err
	}
	selection := kube.Selection{Labels: manifest.LabelRole + "=" + manifest.RoleVM}
	user, used, err := s.Pods.Find(s.Ctx, selection, func(pod *corev1.Pod) bool {
		return images.SameImage(manifest.StemcellOf(pod), cid)
	})
	switch {
	case err != nil:
		return err
	case used:
		return call.CodeStemcellInUse.Errorf("stemcell %s is in use by VM %s; delete or recreate that VM first", cid, user.Name)
	}
	return stemcellError(s.store().Delete(s.Ctx, cid))
}
