package environment

import (
	"net/netip"

	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/cluster"
	"bosh-kubernetes-cpi/manifests"
)

const (
	dynamicNetworkFile = "dynamic-network.yml"
	dnsOpsFile         = "bosh-dns.yml"
)

// cloudConfigFiles returns the files of an initial cloud config for the director: the config, its ops file and its variables.
func (p *Plan) cloudConfigFiles() ([]file, error) {
	base, err := manifests.Files.ReadFile(cloudConfigFile)
	if err != nil {
		return nil, err
	}
	dns, err := manifests.Files.ReadFile(dnsOpsFile)
	if err != nil {
		return nil, err
	}
	vars := Vars{}
	if p.inspection.DNSAddress != "" { // otherwise, the BOSH CLI reports that the variable has no value
		vars["cluster_dns"] = p.inspection.DNSAddress
	}
	files := []file{{cloudConfigFile, base}, {opsDir + "/" + dnsOpsFile, dns}}
	if p.Network == NetworkStatic {
		prefix, err := netip.ParsePrefix(p.Vars.GetString("internal_cidr"))
		if err != nil {
			return nil, err
		}
		first, last := cluster.AddressAt(prefix, gatewayOffset), cluster.AddressAt(prefix, lastReservedOffset)
		vars["network_range"], vars["network_gateway"] = prefix.String(), p.Vars["internal_gw"]
		vars["network_reserved"] = []any{first.String() + "-" + last.String(), p.Vars["internal_ip"]}
	} else {
		content, err := manifests.Files.ReadFile(dynamicNetworkFile)
		if err != nil {
			return nil, err
		}
		files = append(files, file{opsDir + "/" + dynamicNetworkFile, content})
	}
	content, err := yaml.Marshal(vars)
	return append(files, file{cloudConfigVarsFile, content}), err
}
