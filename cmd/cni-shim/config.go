package main

import (
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cmd/cni-shim/install"
	"bosh-kubernetes-cpi/kube/document"
)

// defaultTimeout bounds how long ADD waits for the API server. It is long enough to ride out a restart of the API server, and shorter
// than the timeout of the kubelet, which retries.
const defaultTimeout = 10 * time.Second

// config is the shim's own part of the plugin entry. Only ADD and STATUS read it.
type config struct {
	Kubernetes struct {
		// Kubeconfig is the path, on the node, of a kubeconfig with permission to get Pods.
		Kubeconfig string `json:"kubeconfig"`
		// Context is a context of the kubeconfig, by default the current context.
		Context string `json:"context"`
		// Timeout bounds how long ADD waits for the API server.
		Timeout metav1.Duration `json:"timeout"`
	}
	// Annotation is the key of the Pod annotation that holds the requested addresses: "ip" or "ip4,ip6".
	Annotation string
	// Namespaces lists the namespaces in which Pods may request addresses (default: all). The shim passes Pods of other namespaces to the
	// delegate, so they do not depend on the API server.
	Namespaces []string
	// Subnets are the subnets of the requested addresses. If set, the delegate gets each address with the prefix length of its subnet,
	// as the static plugin requires.
	Subnets []netip.Prefix
}

func parseConfig(entry object) (config, error) {
	c := config{Annotation: install.DefaultAnnotation}
	c.Kubernetes.Timeout.Duration = defaultTimeout
	for _, part := range []struct {
		key  string
		into any
	}{
		{"kubernetes", &c.Kubernetes}, {"annotation", &c.Annotation}, {"namespaces", &c.Namespaces}, {"subnets", &c.Subnets},
	} {
		if entry[part.key] == nil {
			continue
		}
		if err := document.Decode("the configuration of "+install.PluginType+": "+part.key, entry[part.key], part.into); err != nil {
			return c, newError(types.ErrInvalidNetworkConfig, "%v", err)
		}
	}
	switch {
	case c.Kubernetes.Kubeconfig == "":
		return c, newError(types.ErrInvalidNetworkConfig,
			"kubernetes.kubeconfig is missing in the configuration of %s; set it to the path of a kubeconfig with permission to get Pods",
			install.PluginType)
	case c.Kubernetes.Timeout.Duration <= 0:
		return c, newError(types.ErrInvalidNetworkConfig,
			"kubernetes.timeout in the configuration of %s must be greater than 0, for example \"10s\"", install.PluginType)
	case c.Annotation == "":
		return c, newError(types.ErrInvalidNetworkConfig,
			"annotation in the configuration of %s is empty; omit it to use %s", install.PluginType, install.DefaultAnnotation)
	}
	return c, nil
}

// servesNamespace reports whether Pods of this namespace may request addresses.
func (c config) servesNamespace(namespace string) bool {
	return len(c.Namespaces) == 0 || slices.Contains(c.Namespaces, namespace)
}

// object is a JSON object that keeps keys unknown to the shim.
type object map[string]json.RawMessage

// shimKeys are the keys of the plugin entry that belong to the shim. The delegate's configuration may have keys of the same names.
var shimKeys = []string{"type", "kubernetes", "annotation", "namespaces", "subnets", "delegate"}

// delegateConfig returns the delegate's type and configuration. The configuration includes all keys that the runtime adds to a plugin
// entry: cniVersion, name, prevResult, runtimeConfig, args, cni.dev/valid-attachments, and keys of later versions of the specification
// (section 1: Network configuration format; section 4: Plugin Delegation).
func delegateConfig(entry object) (string, object, error) {
	var delegate object
	if entry["delegate"] == nil {
		return "", nil, newError(types.ErrInvalidNetworkConfig,
			"delegate is missing in the configuration of %s; set it to the configuration of the plugin to call", install.PluginType)
	}
	if err := document.Unmarshal("the configuration of "+install.PluginType+": delegate", entry["delegate"], &delegate); err != nil {
		return "", nil, newError(types.ErrInvalidNetworkConfig, "%v", err)
	}
	var kind string
	if err := json.Unmarshal(delegate["type"], &kind); err != nil || kind == "" {
		return "", nil, newError(types.ErrInvalidNetworkConfig,
			"delegate.type is missing or not a string in the configuration of %s; set it to the type of the plugin to call", install.PluginType)
	}
	if kind == install.PluginType {
		return "", nil, newError(types.ErrInvalidNetworkConfig, "delegate.type is %s itself; set it to the type of the plugin to call", kind)
	}
	for key, value := range entry {
		if !slices.Contains(shimKeys, key) {
			delegate[key] = value
		}
	}
	return kind, delegate, nil
}

// with returns a copy in which the key at path has the given value.
func (o object) with(value any, path ...string) (object, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	changed := object{}
	maps.Copy(changed, o)
	if len(path) > 1 {
		var inner object
		if existing := o[path[0]]; existing != nil {
			if err := document.Unmarshal("the delegate's configuration: "+path[0], existing, &inner); err != nil {
				return nil, newError(types.ErrInvalidNetworkConfig, "%v", err)
			}
		}
		if inner, err = inner.with(value, path[1:]...); err != nil {
			return nil, err
		}
		if raw, err = json.Marshal(inner); err != nil {
			return nil, err
		}
	}
	changed[path[0]] = raw
	return changed, nil
}
