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
	// PluginType is the type of the shim in network configurations, and the name of its program in CNI_PATH.
	PluginType = "bosh-cni-shim"
	// DefaultAnnotation is the default key of the Pod annotation that holds the requested addresses.
	DefaultAnnotation = "bosh.cloudfoundry.org/ip-address"

	configName     = "00-" + PluginType + ".conflist"
	kubeconfigName = PluginType + ".kubeconfig"
)

// Options are the paths and settings of an installation.
type Options struct {
	// BinaryDir is the directory of the node's CNI plugins. ConfigDir is the directory of its network configurations. Both must be
	// mounted at the same path as on the node.
	BinaryDir, ConfigDir string
	// Program is the path of the shim's program.
	Program string
	// ServiceAccount is the directory with the token and ca.crt of a service account, as in a Pod. Server is the URL at which the node
	// reaches the API server. The node's kubeconfig contains them.
	ServiceAccount, Server string
	// TokenFor is the service account of the node's token, as namespace/name. The token is not bound to a Pod. If TokenFor is empty,
	// the node gets the token in ServiceAccount.
	TokenFor string

	// Annotation, Timeout, Subnets and Namespaces are keys of the shim's configuration. Zero values are omitted.
	Annotation string
	Timeout    time.Duration
	Subnets    []string
	Namespaces []string
}

// Validate returns an error for the first invalid option.
func (o Options) Validate() error {
	for _, dir := range []struct{ flag, path string }{{"bin-dir", o.BinaryDir}, {"conf-dir", o.ConfigDir}} {
		if !filepath.IsAbs(dir.path) {
			return fmt.Errorf("-%s %q is not an absolute path; mount the node's directory at the same path, and set that path", dir.flag, dir.path)
		}
	}
	for _, subnet := range o.Subnets {
		if _, err := netip.ParsePrefix(subnet); err != nil {
			return fmt.Errorf("-subnets: %q is not a CIDR such as 10.0.0.0/16", subnet)
		}
	}
	namespace, name, _ := strings.Cut(o.TokenFor, "/")
	if o.TokenFor != "" && (!isName(namespace) || !isName(name)) {
		return fmt.Errorf("-token-for %q is not a service account as namespace/name", o.TokenFor)
	}
	for _, namespace := range o.Namespaces {
		if !isName(namespace) {
			return fmt.Errorf("-namespaces: %q is not a valid namespace name", namespace)
		}
	}
	if o.Timeout < 0 {
		return errors.New("-timeout must be at least 0")
	}
	return nil
}

// isName reports whether name is a valid object name. Valid names cannot change the structure of a URL path.
func isName(name string) bool { return len(validation.IsDNS1123Subdomain(name)) == 0 }

func (o Options) binaryPath() string     { return filepath.Join(o.BinaryDir, PluginType) }
func (o Options) kubeconfigPath() string { return filepath.Join(o.ConfigDir, kubeconfigName) }
func (o Options) configPath() string     { return filepath.Join(o.ConfigDir, configName) }
