package stemcells

import (
	"encoding/json"

	"bosh-kubernetes-cpi/cpi/call"
)

// checkInfrastructure rejects a stemcell for the virtual machines of another IaaS. Their cloud properties have other types.
func checkInfrastructure(properties json.RawMessage) error {
	var stemcell struct {
		Infrastructure string `json:"infrastructure"`
	}
	_ = json.Unmarshal(properties, &stemcell) // Create reports invalid JSON
	switch stemcell.Infrastructure {
	case "alicloud", "aws", "azure", "cloudstack", "google", "openstack", "softlayer", "vcloud", "virtualbox", "vsphere":
		return call.CodeInvalidStemcell.Errorf("the stemcell is for virtual machines of %s (cloud_properties.infrastructure); "+
			"upload one for containers: docker-light or warden", stemcell.Infrastructure)
	}
	return nil
}
