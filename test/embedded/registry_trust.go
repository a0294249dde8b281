package embedded

import (
	"fmt"
	"os"
	"path/filepath"
)

// TrustRegistry configures the node to pull images with this registry name from the server at the address, with a certificate of this
// CA. containerd reads the configuration for every pull:
// https://github.com/containerd/containerd/blob/main/docs/hosts.md
func (n *Node) TrustRegistry(name, address, ca string) error {
	folder := filepath.Join(n.file("registries"), name)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "ca.crt"), []byte(ca), 0o644); err != nil {
		return err
	}
	hosts := fmt.Sprintf("server = \"https://%s\"\nca = \"ca.crt\"\n", address)
	return os.WriteFile(filepath.Join(folder, "hosts.toml"), []byte(hosts), 0o644)
}
