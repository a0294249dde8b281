package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cmd/cni-shim/install"
)

// defaultTimeout bounds how long ADD waits for the API server: long enough for one that restarts,
// short enough that the kubelet's own patience is not used up. The kubelet tries again.
const defaultTimeout = 10 * time.Second

// config is the shim's own part of its plugin entry. Only ADD and STATUS read it.
type config struct {
	Kubernetes struct {
		// Kubeconfig is the path, on the node, of a kubeconfig that may get Pods.
		Kubeconfig string `json:"kubeconfig"`
		// Context is the kubeconfig's context to use; its current one by default.
		Context string `json:"context"`
		// Timeout bounds how long ADD waits for the API server.
		Timeout metav1.Duration `json:"timeout"`
	}
	// Annotation holds a Pod's addresses: "ip" or "ip4,ip6".
	Annotation string
	// Namespaces, when there are any, are those whose Pods may ask for addresses. Those of others are the delegate's
	// alone, and never depend on the API.
	Namespaces []string
	// Subnets, when there are any, are the networks that addresses are in. Addresses are then passed
	// with their network's prefix length, without which static refuses them.
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
		decoder := json.NewDecoder(bytes.NewReader(entry[part.key]))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(part.into); err != nil {
			return c, failure(types.ErrInvalidNetworkConfig, "%s of %s's configuration: %v", part.key, install.PluginType, err)
		}
	}
	switch {
	case c.Kubernetes.Kubeconfig == "":
		return c, failure(types.ErrInvalidNetworkConfig,
			"kubernetes.kubeconfig is missing in %s's configuration: it names the kubeconfig with which Pods are read", install.PluginType)
	case c.Kubernetes.Timeout.Duration <= 0:
		return c, failure(types.ErrInvalidNetworkConfig,
			"kubernetes.timeout of %s's configuration must be longer than 0, for example \"10s\"", install.PluginType)
	case c.Annotation == "":
		return c, failure(types.ErrInvalidNetworkConfig,
			"annotation of %s's configuration is empty: leave it out for %s", install.PluginType, install.DefaultAnnotation)
	}
	return c, nil
}

// serves reports whether Pods of this namespace may ask for addresses.
func (c config) serves(namespace string) bool {
	return len(c.Namespaces) == 0 || slices.Contains(c.Namespaces, namespace)
}

// object is JSON of which only some keys are understood and the others are kept as they came.
type object map[string]json.RawMessage

// own are the keys of the shim's entry that are not the delegate's business.
var own = []string{"type", "kubernetes", "annotation", "namespaces", "subnets", "delegate"}

// delegateConfig returns the delegate's configuration and its type. Whatever the runtime derived for
// this call or the list says for all its plugins goes to the delegate: cniVersion, name, prevResult,
// runtimeConfig, args, cni.dev/valid-attachments, and what later versions of the specification add
// (section 1: Network configuration format; section 4: Plugin Delegation).
func delegateConfig(entry object) (string, object, error) {
	var delegate object
	if entry["delegate"] == nil {
		return "", nil, failure(types.ErrInvalidNetworkConfig,
			"delegate is missing in %s's configuration: it holds the configuration of the plugin to call", install.PluginType)
	}
	if err := json.Unmarshal(entry["delegate"], &delegate); err != nil {
		return "", nil, failure(types.ErrInvalidNetworkConfig, "delegate of %s's configuration is not a hash: %v", install.PluginType, err)
	}
	var kind string
	if err := json.Unmarshal(delegate["type"], &kind); err != nil || kind == "" {
		return "", nil, failure(types.ErrInvalidNetworkConfig,
			"delegate.type is missing in %s's configuration: it names the plugin to call", install.PluginType)
	}
	if kind == install.PluginType {
		return "", nil, failure(types.ErrInvalidNetworkConfig, "delegate.type is %s itself", kind)
	}
	maps.Copy(delegate, entry)
	for _, key := range own {
		delete(delegate, key)
	}
	delegate["type"], _ = json.Marshal(kind)
	return kind, delegate, nil
}

// with returns a copy in which value stands at the path, and everything beside it is kept.
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
			if err := json.Unmarshal(existing, &inner); err != nil {
				return nil, failure(types.ErrInvalidNetworkConfig, "%s of the delegate's configuration is not a hash: %v", path[0], err)
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
