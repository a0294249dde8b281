package environment

import (
	"net/netip"

	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/cluster"
	"bosh-kubernetes-cpi/manifests"
)

const dynamicNetwork = "dynamic-network.yml"

// cloudConfig is a first one for the director, with its ops file and variables.
func (p *Plan) cloudConfig() ([]file, error) {
	base, err := manifests.Files.ReadFile(cloudConfigFile)
	if err != nil {
		return nil, err
	}
	vars := Vars{"cluster_dns": p.found.DNS}
	files := []file{{cloudConfigFile, base}}
	if p.Network == Static {
		within, err := netip.ParsePrefix(p.Vars.Text("internal_cidr"))
		if err != nil {
			return nil, err
		}
		kept := cluster.Range{Prefix: within}
		vars["network_range"], vars["network_gateway"] = kept.String(), p.Vars["internal_gw"]
		vars["network_reserved"] = []any{kept.Nth(gatewayOffset) + "-" + kept.Nth(reservedOffset), p.Vars["internal_ip"]}
	} else {
		content, err := manifests.Files.ReadFile(dynamicNetwork)
		if err != nil {
			return nil, err
		}
		files = append(files, file{opsFolder + "/" + dynamicNetwork, content})
	}
	content, err := yaml.Marshal(vars)
	return append(files, file{cloudConfigVarsFile, content}), err
}
