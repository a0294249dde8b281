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

// renderKubeconfig returns the kubeconfig for the node, with the token returned by nodeToken.
func (o Options) renderKubeconfig(ctx context.Context, minRemaining float64) ([]byte, error) {
	if o.Server == "" {
		return nil, errors.New("the address of the API server is unknown; set -server, or run in a Pod")
	}
	token, err := o.nodeToken(ctx, minRemaining)
	if err != nil {
		return nil, err
	}
	caData, err := o.readCA()
	if err != nil {
		return nil, err
	}
	type named map[string]any
	const name = PluginType
	content, err := json.MarshalIndent(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": name,
		"clusters": []named{{"name": name, "cluster": named{
			"server": o.Server, "certificate-authority-data": base64.StdEncoding.EncodeToString(caData),
		}}},
		"users":    []named{{"name": name, "user": named{"token": token}}},
		"contexts": []named{{"name": name, "context": named{"cluster": name, "user": name}}},
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the kubeconfig: %w", err)
	}
	return content, nil
}

func (o Options) readCA() ([]byte, error) {
	caData, err := os.ReadFile(filepath.Join(o.ServiceAccount, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("read the API server's CA certificate: %w", err)
	}
	return caData, nil
}

// InClusterServer returns the URL of the API server from the environment of a Pod, or "" outside of Pods.
func InClusterServer() string {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return ""
	}
	return "https://" + net.JoinHostPort(host, port)
}
