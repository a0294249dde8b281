package cpi

import (
	"encoding/json"
	"errors"
	"os"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/stemcell"
)

func (s *requestSession) stemcellStore() stemcell.Store {
	return stemcell.Store{Options: s.config.Stemcell, Log: s.Log}
}

// createStemcell returns the CID of a stemcell, which is an image reference. For a heavy stemcell, it pushes the image. It sends
// requests to the cluster only if stemcell.prefetch is enabled.
func (s *requestSession) createStemcell(image string, properties json.RawMessage) (string, error) {
	var cloudProperties stemcell.Properties
	if err := json.Unmarshal(properties, &cloudProperties); err != nil {
		return "", call.CodeInvalidStemcell.Errorf("invalid cloud_properties of the stemcell: %w", err)
	}
	if err := s.checkStemcellAPI(); err != nil {
		return "", err
	}
	if cloudProperties.IsLight() {
		cid, err := s.stemcellStore().Pin(s.Ctx, cloudProperties)
		if err != nil {
			return "", stemcellError(err)
		}
		return cid, s.ensurePrefetch(cid)
	}
	if err := checkImage(image); err != nil {
		return "", err
	}
	if err := s.dryRunPrefetch(); err != nil {
		return "", err
	}
	cid, err := s.stemcellStore().Push(s.Ctx, image, cloudProperties, map[string]string{manifest.LabelDirector: s.Director})
	if err != nil {
		return "", stemcellError(err)
	}
	return cid, s.ensurePrefetch(cid) // if this fails, a retried call finds the image in the registry
}

// checkImage rejects a stemcell without an image: its cloud properties have no reference, and its image file is missing or empty.
func checkImage(path string) error {
	stat, err := os.Stat(path)
	switch {
	case err != nil:
		return call.CodeInvalidStemcell.Errorf("cannot read the stemcell's image, and cloud_properties.image_reference is missing: %w", err)
	case stat.Size() == 0:
		return call.CodeInvalidStemcell.Errorf("cloud_properties.image_reference is missing: the stemcell's image is empty, " +
			"as in a light stemcell; set cloud_properties.image_reference and digest")
	}
	return nil
}

// checkStemcellAPI rejects a stemcell with an agent that does not support disk hints at runtime.
func (s *requestSession) checkStemcellAPI() error {
	if s.stemcellAPI == nil {
		return nil
	}
	return stemcellError(stemcell.CheckAPIVersion(*s.stemcellAPI))
}

// stemcellError adds the code to an error of package stemcell.
func stemcellError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, stemcell.ErrNoRegistry):
		return call.CodeRegistryMissing.Errorf("cannot push the stemcell's root filesystem: %w; set stemcell.registry.repository to a "+
			"repository that the CPI can push to and the nodes can pull from, or convert the stemcell to a light one with "+
			"scripts/build-stemcell", err)
	}
	for _, known := range []struct {
		kind error
		code call.Code
	}{
		{stemcell.ErrInvalid, call.CodeInvalidStemcell},
		{stemcell.ErrFull, call.CodeRegistryFull},
		{stemcell.ErrNotFound, call.CodeImageNotFound},
		{stemcell.ErrDenied, call.CodeRegistryDenied},
		{stemcell.ErrUntrusted, call.CodeRegistryUntrusted},
		{stemcell.ErrUndeletable, call.CodeRegistryUndeletable},
	} {
		if errors.Is(err, known.kind) {
			return known.code.Wrap(err, false)
		}
	}
	return call.CodeRegistryFailed.Wrap(err, false)
}

// deleteStemcell deletes the image of a heavy stemcell from the registry, unless a VM uses it: the VM's node may have to pull it
// again. The CPI does not own the image of a light stemcell, and does not delete it. In both cases deleteStemcell deletes the prefetch
// DaemonSet.
func (s *requestSession) deleteStemcell(cid string) error {
	if !stemcell.IsHeavy(cid) {
		return s.deletePrefetch(cid)
	}
	if err := s.ensureClient(); err != nil {
		return err
	}
	selection := kube.Selection{Labels: manifest.LabelRole + "=" + manifest.RoleVM}
	user, used, err := s.Pods.Find(s.Ctx, selection, func(pod *corev1.Pod) bool {
		return stemcell.SameImage(pod.Annotations[manifest.AnnotationStemcell], cid)
	})
	switch {
	case err != nil:
		return err
	case used:
		return call.CodeStemcellInUse.Errorf("stemcell %s is in use by VM %s; delete or recreate that VM first", cid, user.Name)
	}
	if err := s.deletePrefetch(cid); err != nil {
		return err
	}
	return stemcellError(s.stemcellStore().Delete(s.Ctx, cid))
}
