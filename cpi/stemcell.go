package cpi

import (
	"encoding/json"
	"errors"
	"os"

	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
	"bosh-kubernetes-cpi/stemcell"
)

func (s *requestSession) stemcellStore() stemcell.Store {
	return stemcell.Store{Options: s.config.Stemcell, Log: s.Log}
}

// createStemcell returns the reference of the image that a light stemcell names, or pushes a heavy
// one's. No request is sent to the cluster unless nodes are to pull the image already.
func (s *requestSession) createStemcell(image string, properties json.RawMessage) (string, error) {
	var named stemcell.Properties
	if err := json.Unmarshal(properties, &named); err != nil {
		return "", call.Invalid("cloud_properties: %w", err)
	}
	if err := s.checkStemcellAPI(); err != nil {
		return "", err
	}
	if named.IsLight() {
		cid, err := s.stemcellStore().Pin(s.Ctx, named)
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
	cid, err := s.stemcellStore().Push(s.Ctx, image, named, map[string]string{manifest.LabelDirector: s.Director})
	if err != nil {
		return "", stemcellError(err)
	}
	return cid, s.ensurePrefetch(cid) // if this fails, the image waits for the repeated call, which does not push it again
}

// checkImage refuses a stemcell that neither names an image nor brings one.
func checkImage(path string) error {
	stat, err := os.Stat(path)
	switch {
	case err != nil:
		return call.Invalid("the stemcell's image cannot be read, and its cloud_properties name none (image_reference): %w", err)
	case stat.Size() == 0:
		return call.Invalid("cloud_properties.image_reference is missing: the stemcell's image is empty, as in a light stemcell, " +
			"but its cloud_properties name no container image (image_reference and digest, or image)")
	}
	return nil
}

// checkStemcellAPI refuses a stemcell whose agent cannot be told of disks while it runs.
func (s *requestSession) checkStemcellAPI() error {
	if s.stemcellAPI == nil {
		return nil
	}
	return stemcellError(stemcell.CheckAPIVersion(*s.stemcellAPI))
}

// stemcellError gives an error of package stemcell its type.
func stemcellError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, stemcell.ErrNoRegistry):
		return call.NotSupported.Errorf("this stemcell brings a root filesystem, and %w that it could be pushed to. "+
			"Either set stemcell.registry.repository (a repository that the CPI can push to and the nodes can pull from), "+
			"or use a light stemcell, whose cloud_properties name an image: scripts/build-stemcell makes one of this stemcell", err)
	case errors.Is(err, stemcell.ErrInvalid):
		return call.Invalid("%w", err)
	case errors.Is(err, stemcell.ErrFull):
		return call.NoDiskSpace.Errorf("%w", err)
	}
	return call.CloudError.Errorf("%w", err)
}

// deleteStemcell removes the image that the CPI pushed, unless a VM uses it: its node may have to pull
// it again. A light stemcell's image is not the CPI's, and its registry is left alone. Nodes that keep the image, of either
// kind, do so no longer.
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
		return call.CloudError.Errorf("stemcell %s is in use by VM %s: delete or recreate that VM first", cid, user.Name)
	}
	if err := s.deletePrefetch(cid); err != nil {
		return err
	}
	return stemcellError(s.stemcellStore().Delete(s.Ctx, cid))
}
