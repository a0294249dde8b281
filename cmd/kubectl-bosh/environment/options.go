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

// Options are what the operator says. What is empty is found out, or is as it was.
type Options struct {
	Director  string // its name
	Namespace string
	Cluster   *cluster.Identity // as the folder is to record it

	Deployment string // a folder with bosh-deployment
	Manifest   string // instead of its bosh.yml
	OpsFiles   []string
	Vars       []string // NAME=VALUE

	Release, ReleaseSHA1   string // a path, or a URL
	Stemcell, StemcellSHA1 string

	Network     string // Static or Service
	Range       string
	Address     string
	Credentials string // InCluster or Kubeconfig

	ReplaceServer   bool // in the kubeconfig of this machine's CPI
	AllowPrivileged bool // Pods, in a namespace that exists

	// Reach are the flags of kubectl and of this program that lead to the cluster, as the operator has given them.
	Reach []string
}

// How a director has its address.
const (
	Static  = "static"  // the Pod's own, asked of the network plugin
	Service = "service" // of a Service that outlives its VM
)

// As whom a director works in the cluster.
const (
	InCluster  = "in-cluster" // by the service account of its own Pod
	Kubeconfig = "kubeconfig" // by a kubeconfig with a token
)

// Validate checks what can be checked without a cluster.
func (o Options) Validate() error {
	if o.Deployment != "" && o.Manifest != "" {
		return errors.New("--bosh-deployment and --manifest are both given: give one of them")
	}
	if err := oneOf("--network", o.Network, Static, Service); err != nil {
		return err
	}
	if err := oneOf("--credentials", o.Credentials, InCluster, Kubeconfig); err != nil {
		return err
	}
	if o.Range != "" {
		if prefix, err := netip.ParsePrefix(o.Range); err != nil || prefix != prefix.Masked() {
			return fmt.Errorf("--range %q is no range such as 10.244.128.0/17", o.Range)
		}
	}
	if o.Address != "" {
		if _, err := netip.ParseAddr(o.Address); err != nil {
			return fmt.Errorf("--address %q is no address", o.Address)
		}
	}
	if o.Range != "" && o.Network == Service {
		return errors.New("--range is for --network static: a Service's address is of the cluster's Service range")
	}
	for flag, given := range map[string][2]string{"release": {o.Release, o.ReleaseSHA1}, "stemcell": {o.Stemcell, o.StemcellSHA1}} {
		if remote(given[0]) && given[1] == "" {
			return fmt.Errorf("--%s is downloaded, and the BOSH CLI takes it with its checksum only: give --%s-sha1", flag, flag)
		}
	}
	_, err := o.vars()
	return err
}

func oneOf(flag, value string, known ...string) error {
	for _, each := range known {
		if value == "" || value == each {
			return nil
		}
	}
	return fmt.Errorf("%s %q is none of %s", flag, value, strings.Join(known, ", "))
}

// remote reports whether the BOSH CLI downloads it.
func remote(place string) bool {
	return strings.HasPrefix(place, "https://") || strings.HasPrefix(place, "http://")
}

// url is the place as manifests name it.
func url(place string) (string, error) {
	if strings.Contains(place, "://") {
		return place, nil
	}
	path, err := filepath.Abs(place)
	return "file://" + path, err
}

// vars are the variables that are given one by one, and those of the release and the stemcell.
func (o Options) vars() (Vars, error) {
	given := Vars{}
	for name, place := range map[string]string{"kubernetes_cpi_url": o.Release, "stemcell_url": o.Stemcell} {
		if place == "" {
			continue
		}
		var err error
		if given[name], err = url(place); err != nil {
			return nil, err
		}
	}
	for name, sum := range map[string]string{"kubernetes_cpi_sha1": o.ReleaseSHA1, "stemcell_sha1": o.StemcellSHA1} {
		if sum != "" {
			given[name] = sum
		}
	}
	// Values may be secret: no error repeats one, nor the parser's, which quotes it.
	for i, each := range o.Vars {
		name, text, found := strings.Cut(each, "=")
		if !found || name == "" {
			return nil, fmt.Errorf("--var number %d is not NAME=VALUE", i+1)
		}
		var value any
		if yaml.Unmarshal([]byte(text), &value) != nil {
			return nil, fmt.Errorf("--var %s: the value is not valid YAML; a plain text with special characters needs quotes of its own, as in "+
				"--var \"%s='VALUE'\"", name, name)
		}
		given[name] = value
	}
	return given, nil
}

// manifest is the path of the manifest, "" when none is given.
func (o Options) manifest() (string, error) {
	switch {
	case o.Manifest != "":
		return filepath.Abs(o.Manifest)
	case o.Deployment != "":
		return filepath.Abs(filepath.Join(o.Deployment, "bosh.yml"))
	}
	return "", nil
}
