package benchenv

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/test/bench/figures"
	"bosh-kubernetes-cpi/test/director"
)

// Director calls the CPI as the director does, and tells what each call took.
type Director struct {
	Programs
	Config string
}

// NewDirector is one for the namespace of the cluster of a kubeconfig file. Its configuration is as the release's job writes
// it: the kubeconfig is YAML, and part of it.
//
// Its machines' agents listen for HTTPS: one that finds no NATS ends again and again, which create_vm then has to wait for.
func NewDirector(programs Programs, dir, name, kubeconfig, namespace string) (Director, error) {
	raw, err := os.ReadFile(kubeconfig)
	if err != nil {
		return Director{}, err
	}
	content, err := yaml.JSONToYAML(raw)
	if err != nil {
		return Director{}, err
	}
	config := filepath.Join(dir, name+".json")
	return Director{programs, config}, director.WriteConfig(config, "", namespace, map[string]any{
		"kubernetes": map[string]any{"kubeconfig": string(content), "namespace": namespace},
		"agent":      map[string]any{"mbus": director.AgentMbus},
	})
}

// Call makes the call, decodes its result into what is not nil, and returns what it took. An error that the CPI answers is one.
func (d Director) Call(ctx context.Context, result any, method string, arguments ...any) (figures.Usage, error) {
	request, err := EncodeRequest(method, arguments...)
	if err != nil {
		return figures.Usage{}, err
	}
	usage, out, err := Measure(ctx, d.Launcher, request, d.CPI, "-configPath", d.Config)
	if err != nil {
		return usage, fmt.Errorf("%s: %w", method, err)
	}
	var response director.Response
	if err := json.Unmarshal(out, &response); err != nil {
		return usage, fmt.Errorf("%s: %w", method, err)
	}
	if response.Error != nil {
		return usage, fmt.Errorf("%s: %w", method, response.Error)
	}
	if result == nil {
		return usage, nil
	}
	return usage, json.Unmarshal(response.Result, result)
}

// EncodeRequest is a call as the director writes it.
func EncodeRequest(method string, arguments ...any) ([]byte, error) {
	if arguments == nil {
		arguments = []any{}
	}
	return json.Marshal(map[string]any{
		"method": method, "arguments": arguments, "api_version": 2,
		"context": map[string]any{"director_uuid": director.UUID, "request_id": "cpi-1"},
	})
}
