package benchenv

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/test/bench/report"
	"bosh-kubernetes-cpi/test/harness/director"
)

// Director calls the CPI like a BOSH director, and returns the usage of each call.
type Director struct {
	Programs
	Config string
}

// NewDirector returns a director for the namespace. Its configuration contains the content of the kubeconfig file as YAML, like the
// configuration of the release's job. With nodeImage "", no VM of the director can start on a real node.
//
// The agents of its VMs listen for HTTPS. With NATS, they would exit repeatedly without a server, and create_vm would wait for them.
func NewDirector(programs Programs, dir, name, kubeconfig, namespace, nodeImage string) (Director, error) {
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
		"kubeconfig_path": nil, "kubeconfig": string(content),
		"agent":      map[string]any{"mbus": director.AgentMbus},
		"node_image": cmp.Or(nodeImage, director.NodeImage),
	})
}

// Call calls the CPI and returns the usage. It decodes the call's result into result unless that is nil, and returns errors of the CPI.
func (d Director) Call(ctx context.Context, result any, method string, arguments ...any) (report.Usage, error) {
	request, err := EncodeRequest(method, arguments...)
	if err != nil {
		return report.Usage{}, err
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

// EncodeRequest returns the request of a call, as the director writes it.
func EncodeRequest(method string, arguments ...any) ([]byte, error) {
	if arguments == nil {
		arguments = []any{}
	}
	return json.Marshal(map[string]any{
		"method": method, "arguments": arguments, "api_version": 2,
		"context": map[string]any{"director_uuid": director.UUID, "request_id": "cpi-1"},
	})
}
