package install

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// credentials returns the kubeconfig for the node, with a token of which more than this part of its life is left.
func (o Options) credentials(ctx context.Context, enough float64) ([]byte, error) {
	if o.Server == "" {
		return nil, errors.New("the API server's address is not known: give -server, or run in a Pod")
	}
	token, err := o.token(ctx, enough)
	if err != nil {
		return nil, err
	}
	authority, err := o.authority()
	if err != nil {
		return nil, err
	}
	type named map[string]any
	const name = PluginType
	content, err := json.MarshalIndent(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": name,
		"clusters": []named{{"name": name, "cluster": named{
			"server": o.Server, "certificate-authority-data": base64.StdEncoding.EncodeToString(authority),
		}}},
		"users":    []named{{"name": name, "user": named{"token": token}}},
		"contexts": []named{{"name": name, "context": named{"cluster": name, "user": name}}},
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the kubeconfig: %w", err)
	}
	return content, nil
}

func (o Options) authority() ([]byte, error) {
	authority, err := os.ReadFile(filepath.Join(o.ServiceAccount, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("read the API server's certificate authority: %w", err)
	}
	return authority, nil
}

// ServerOfPod returns the API server's URL as a Pod is told it; empty outside a Pod.
func ServerOfPod() string {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return ""
	}
	return "https://" + net.JoinHostPort(host, port)
}
