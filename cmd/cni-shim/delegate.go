package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"

	"bosh-kubernetes-cpi/kube/document"
)

// delegate is a call of the delegated plugin.
type delegate struct {
	kind   string // type in the configuration
	path   string // path of the program
	config object
	args   string // CNI_ARGS
}

func (s *shim) findDelegate(entry object, path, args string) (delegate, error) {
	kind, config, err := delegateConfig(entry)
	if err != nil {
		return delegate{}, err
	}
	found, err := invoke.FindInPath(kind, filepath.SplitList(path))
	if err != nil {
		return delegate{}, newError(types.ErrInvalidNetworkConfig, "cannot find the delegate %s: %v", kind, err)
	}
	return delegate{kind: kind, path: found, config: config, args: args}, nil
}

// run runs the delegate and returns its output. The delegate inherits the environment of this process, except for CNI_COMMAND and
// CNI_ARGS. If the delegate prints an error document, run returns it unchanged.
//
// There is no deadline: the runtime has one, and cleans up when it expires.
func (d delegate) run(command string) ([]byte, error) {
	stdin, err := json.Marshal(d.config)
	if err != nil {
		return nil, newError(types.ErrInternal, "cannot encode the configuration of the delegate %s: %v", d.kind, err)
	}
	environment := append(os.Environ(), "CNI_COMMAND="+command, "CNI_ARGS="+d.args) // the last duplicate applies
	exec := invoke.RawExec{Stderr: os.Stderr}
	output, err := exec.ExecPlugin(context.Background(), d.path, stdin, environment)
	var pluginErr *types.Error
	if errors.As(err, &pluginErr) && pluginErr.Code == types.ErrUnknown {
		return nil, types.NewError(types.ErrInternal, "delegate "+d.kind+" failed to run "+command+": "+pluginErr.Msg, pluginErr.Details)
	}
	return output, err
}

// withAddresses returns the delegate with a request for the addresses, by all applicable conventions
// (https://www.cni.dev/docs/conventions/). IP in CNI_ARGS requests the first address, because plugins expect exactly one there. The
// capability ips requests all addresses if the configuration declares it. Otherwise, args.cni.ips requests several addresses.
func (d delegate) withAddresses(a arguments, addresses []string) (delegate, error) {
	d.args = a.with("IP", addresses[0])
	var capabilities map[string]bool
	if raw := d.config["capabilities"]; raw != nil {
		if err := document.Unmarshal("the delegate's configuration: capabilities", raw, &capabilities); err != nil {
			return d, newError(types.ErrInvalidNetworkConfig, "%v", err)
		}
	}
	var err error
	if capabilities["ips"] {
		d.config, err = d.config.with(addresses, "runtimeConfig", "ips")
	} else if len(addresses) > 1 {
		d.config, err = d.config.with(addresses, "args", "cni", "ips")
	}
	return d, err
}
