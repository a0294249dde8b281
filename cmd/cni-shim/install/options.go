package install

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// PluginType is the shim's name in a network's configuration, and its file's in CNI_PATH.
	PluginType = "bosh-cni-shim"
	// DefaultAnnotation is the annotation of a Pod that asks for an address.
	DefaultAnnotation = "bosh.cloudfoundry.org/ip-address"

	configName     = "00-" + PluginType + ".conflist"
	kubeconfigName = PluginType + ".kubeconfig"
)

// Options say what is put where.
type Options struct {
	// BinaryDir is where the node's runtime finds plugins, and ConfigDir where it finds networks. Both
	// have the same path here as on the node.
	BinaryDir, ConfigDir string
	// Program is the shim's own file.
	Program string
	// ServiceAccount is the folder with the token and ca.crt that a Pod gets, and Server the URL of
	// the API server as the node reaches it: the kubeconfig is made of them.
	ServiceAccount, Server string
	// TokenFor is the service account, as NAMESPACE/NAME, whose token the node gets, bound to no Pod; the token in
	// ServiceAccount itself when empty.
	TokenFor string

	// Annotation, Namespaces, Timeout and Subnets are written into the shim's configuration unless they are empty.
	Annotation string
	Timeout    time.Duration
	Subnets    []string
	Namespaces []string
}

// Validate names the first option that is missing or malformed.
func (o Options) Validate() error {
	for _, folder := range []struct{ option, path string }{{"bin-dir", o.BinaryDir}, {"conf-dir", o.ConfigDir}} {
		if !filepath.IsAbs(folder.path) {
			return fmt.Errorf("-%s %q must be an absolute path, the same here and on the node", folder.option, folder.path)
		}
	}
	for _, subnet := range o.Subnets {
		if _, err := netip.ParsePrefix(subnet); err != nil {
			return fmt.Errorf("-subnets: %q is not a network like 10.0.0.0/16", subnet)
		}
	}
	namespace, name, _ := strings.Cut(o.TokenFor, "/")
	if o.TokenFor != "" && (!isName(namespace) || !isName(name)) {
		return fmt.Errorf("-token-for %q is not NAMESPACE/NAME of a service account", o.TokenFor)
	}
	for _, each := range o.Namespaces {
		if !isName(each) {
			return fmt.Errorf("-namespaces: %q is not a namespace's name", each)
		}
	}
	if o.Timeout < 0 {
		return errors.New("-timeout must not be negative")
	}
	return nil
}

// isName reports whether the API server takes this for a name, and not for more of a path.
func isName(name string) bool { return len(validation.IsDNS1123Subdomain(name)) == 0 }

func (o Options) binary() string     { return filepath.Join(o.BinaryDir, PluginType) }
func (o Options) kubeconfig() string { return filepath.Join(o.ConfigDir, kubeconfigName) }
func (o Options) config() string     { return filepath.Join(o.ConfigDir, configName) }
