package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
)

// delegate is the real plugin and what it is called with.
type delegate struct {
	kind   string
	path   string
	config object
	args   string // CNI_ARGS
}

func (s *shim) delegate(entry object, path, args string) (delegate, error) {
	kind, config, err := delegateConfig(entry)
	if err != nil {
		return delegate{}, err
	}
	found, err := invoke.FindInPath(kind, filepath.SplitList(path))
	if err != nil {
		return delegate{}, failure(types.ErrInvalidNetworkConfig, "the delegate %s is not there: %v", kind, err)
	}
	return delegate{kind: kind, path: found, config: config, args: args}, nil
}

// run runs the delegate with this process's environment but for what the call says, and returns what
// it printed. An error that the delegate printed stays as it is.
//
// There is no deadline: the runtime has one, and only it knows what a half-done network costs.
func (d delegate) run(command string) ([]byte, error) {
	stdin, err := json.Marshal(d.config)
	if err != nil {
		return nil, failure(types.ErrInternal, "write the configuration of the delegate %s: %v", d.kind, err)
	}
	environment := append(os.Environ(), "CNI_COMMAND="+command, "CNI_ARGS="+d.args) // the last one holds
	exec := invoke.RawExec{Stderr: os.Stderr}
	answer, err := exec.ExecPlugin(context.Background(), d.path, stdin, environment)
	var said *types.Error
	if errors.As(err, &said) && said.Code == types.ErrUnknown {
		return nil, types.NewError(types.ErrInternal, "the delegate "+d.kind+" failed at "+command+": "+said.Msg, said.Details)
	}
	return answer, err
}

// asking returns the delegate with the addresses asked of it, by all conventions that fit
// (https://www.cni.dev/docs/conventions/): the first as IP in CNI_ARGS, where plugins expect one
// alone; all as the capability ips, when the configuration declares it, and otherwise, when there are
// several, as args.cni.ips.
func (d delegate) asking(a arguments, addresses []string) (delegate, error) {
	d.args = a.with("IP", addresses[0]).String()
	var capabilities map[string]bool
	if raw := d.config["capabilities"]; raw != nil {
		if err := json.Unmarshal(raw, &capabilities); err != nil {
			return d, failure(types.ErrInvalidNetworkConfig,
				"capabilities of the delegate's configuration are not a hash of true and false: %v", err)
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
