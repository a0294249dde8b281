package cpi

import (
	"encoding/json"
	"errors"

	"github.com/cloudfoundry/bosh-cpi-go/apiv1"

	"bosh-kubernetes-cpi/stemcell"
)

// createStemcell answers the reference of the image that a light stemcell names. No request is sent
// to the cluster; the registry is asked once for the digest.
func (c *call) createStemcell(_ string, properties apiv1.CloudPropsImpl) (string, error) {
	var named stemcell.Properties
	if err := json.Unmarshal(properties.RawMessage, &named); err != nil {
		return "", invalid("cloud_properties: %w", err)
	}
	if !named.Light() {
		return "", typed(typeNotSupported, "this stemcell names no container image: use a light stemcell, whose cloud_properties have image_reference and digest (or image)")
	}
	reference, err := named.Reference()
	if err != nil {
		return "", invalid("%w", err)
	}
	pinned, err := stemcell.Pin(c.ctx, reference)
	switch {
	case errors.Is(err, stemcell.ErrNotFound):
		return "", typed(typeCloudError, "the registry has no image %s: push it there, or correct the stemcell's cloud_properties", reference)
	case err != nil:
		c.log.Warn("the registry could not be asked for the image; whether it exists shows when a VM starts",
			"image", reference.String(), "error", err.Error())
		return reference.String(), nil
	}
	return pinned.String(), nil
}

// deleteStemcell leaves a light stemcell's registry alone: the image is not the CPI's.
func (c *call) deleteStemcell(_ apiv1.StemcellCID) (any, error) {
	return nil, nil
}
