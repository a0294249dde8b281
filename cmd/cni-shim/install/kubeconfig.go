package install

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// credentials returns the kubeconfig for the node: a service account's token, which the kubelet renews
// in the Pod that runs the installer, and which Watch copies from there.
func (o Options) credentials() ([]byte, error) {
	if o.Server == "" {
		return nil, errors.New("the API server's address is not known: give -server, or run in a Pod")
	}
	token, err := os.ReadFile(filepath.Join(o.ServiceAccount, "token"))
	if err != nil {
		return nil, fmt.Errorf("read the service account's token: %w", err)
	}
	authority, err := os.ReadFile(filepath.Join(o.ServiceAccount, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("read the API server's certificate authority: %w", err)
	}
	type named map[string]any
	const name = PluginType
	content, err := json.MarshalIndent(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": name,
		"clusters": []named{{"name": name, "cluster": named{
			"server": o.Server, "certificate-authority-data": base64.StdEncoding.EncodeToString(authority),
		}}},
		"users":    []named{{"name": name, "user": named{"token": strings.TrimSpace(string(token))}}},
		"contexts": []named{{"name": name, "context": named{"cluster": name, "user": name}}},
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the kubeconfig: %w", err)
	}
	return content, nil
}

// ServerOfPod returns the API server's URL as a Pod is told it; empty outside a Pod.
func ServerOfPod() string {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return ""
	}
	return "https://" + net.JoinHostPort(host, port)
}
