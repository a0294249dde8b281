package stemcells

import (
	"encoding/json"
	"os"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube/document"
	"bosh-kubernetes-cpi/stemcell"
)

// Create returns the CID of a stemcell, which is an image reference. For a heavy stemcell, it pushes the image, and the
// image of bosh-node. It sends no requests to the cluster.
func (s *Session) Create(image string, properties json.RawMessage) (string, error) {
	var cloudProperties stemcell.Properties
	if err := checkInfrastructure(properties); err != nil {
		return "", err
	}
	if err := document.DecodeKnown("cloud_properties", properties, &cloudProperties); err != nil {
		return "", call.CodeInvalidStemcell.Errorf("%w", err)
	}
	// An agent of an older stemcell does not support disk hints at runtime.
	if err := stemcellError(stemcell.CheckAPIVersion(s.API)); err != nil {
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
