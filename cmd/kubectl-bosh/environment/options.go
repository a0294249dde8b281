package environment

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/cluster"
)

// Options are the values of the operator's flags. Empty ones are taken from the folder, or decided by inspecting the cluster.
type Options struct {
	Director  string // name
	Namespace string
	Cluster   *cluster.Identity // identity to record in the folder

	BOSHDeployment string // folder of a bosh-deployment checkout
	Manifest       string // instead of bosh.yml of bosh-deployment
	OpsFiles       []string
	Vars           []string // NAME=VALUE

	Release, ReleaseSHA1   string // path or URL
	Stemcell, StemcellSHA1 string

	Network     string // NetworkStatic or NetworkService
	Range       string
	Address     string
	Credentials string // CredentialsInCluster or CredentialsKubeconfig

	ReplaceServer   bool // in the kubeconfig of create-env's CPI
	AllowPrivileged bool // change the label of an existing namespace to admit VM Pods

	// KubectlFlags are the operator's flags that select the cluster and the user.
	KubectlFlags []string
}

// Kinds of the director's address.
const (
	NetworkStatic  = "static"  // of the Pod, requested from the network plugin
	NetworkService = "service" // of a Service that outlives the director's VM
)

// Credentials of the director at the API server.
const (
	CredentialsInCluster  = "in-cluster" // service account of its Pod
	CredentialsKubeconfig = "kubeconfig" // kubeconfig with a token
)

// Validate checks the options without a cluster.
func (o Options) Validate() error {
	if o.BOSHDeployment != "" && o.Manifest != "" {
		return errors.New("--bosh-deployment and --manifest exclude each other; give one of them")
	}
	if err := validateChoice("--network", o.Network, NetworkStatic, NetworkService); err != nil {
		return err
	}
	if err := validateChoice("--credentials", o.Credentials, CredentialsInCluster, CredentialsKubeconfig); err != nil {
		return err
	}
	if o.Range != "" {
		if prefix, err := netip.ParsePrefix(o.Range); err != nil || prefix != prefix.Masked() {
			return fmt.Errorf("--range %q is not a CIDR such as 10.244.128.0/17", o.Range)
		}
	}
	if o.Address != "" {
		if _, err := netip.ParseAddr(o.Address); err != nil {
			return fmt.Errorf("--address %q is not a valid IP address", o.Address)
		}
	}
	if o.Range != "" && o.Network == NetworkService {
		return errors.New("--range requires --network static; the address of a Service is in the cluster's Service range")
	}
	for flag, given := range map[string][2]string{"release": {o.Release, o.ReleaseSHA1}, "stemcell": {o.Stemcell, o.StemcellSHA1}} {
		if isURL(given[0]) && given[1] == "" {
			return fmt.Errorf("--%s is a URL, for which the BOSH CLI requires a checksum; add --%s-sha1", flag, flag)
		}
	}
	_, err := o.parseVars()
	return err
}

func validateChoice(flag, value string, known ...string) error {
	for _, choice := range known {
		if value == "" || value == choice {
			return nil
		}
	}
	return fmt.Errorf("%s %q is not valid; use one of %s", flag, value, strings.Join(known, ", "))
}

// isURL reports whether the BOSH CLI downloads from this location.
func isURL(location string) bool {
	return strings.HasPrefix(location, "https://") || strings.HasPrefix(location, "http://")
}

// toURL returns the location as a URL, as manifests require.
func toURL(location string) (string, error) {
	if strings.Contains(location, "://") {
		return location, nil
	}
	path, err := filepath.Abs(location)
	return "file://" + path, err
}

// parseVars returns the variables of --var, and those for the release and the stemcell.
func (o Options) parseVars() (Vars, error) {
	given := Vars{}
	for name, location := range map[string]string{"kubernetes_cpi_url": o.Release, "stemcell_url": o.Stemcell} {
		if location == "" {
			continue
		}
		var err error
		if given[name], err = toURL(location); err != nil {
			return nil, err
		}
	}
	for name, sum := range map[string]string{"kubernetes_cpi_sha1": o.ReleaseSHA1, "stemcell_sha1": o.StemcellSHA1} {
		if sum != "" {
			given[name] = sum
		}
	}
	// Values may be secret: no error contains one, nor the parser's error, which quotes it.
	for i, variable := range o.Vars {
		name, text, found := strings.Cut(variable, "=")
		if !found || name == "" {
			return nil, fmt.Errorf("--var number %d is not NAME=VALUE", i+1)
		}
		var value any
		if yaml.Unmarshal([]byte(text), &value) != nil {
			return nil, fmt.Errorf("--var %s: the value is not valid YAML; put text with special characters in quotes, as in "+
				"--var \"%s='VALUE'\"", name, name)
		}
		given[name] = value
	}
	return given, nil
}

// manifestPath returns the absolute path of the given manifest; "" if none is given.
func (o Options) manifestPath() (string, error) {
	switch {
	case o.Manifest != "":
		return filepath.Abs(o.Manifest)
	case o.BOSHDeployment != "":
		return filepath.Abs(filepath.Join(o.BOSHDeployment, "bosh.yml"))
	}
	return "", nil
}
