package embedded

import (
	"fmt"
	"os"
	"path/filepath"
)

// TrustRegistry configures the node to pull images of the registry from the server at the address, and to trust certificates of the
// CA. containerd reads the configuration for every pull:
// https://github.com/containerd/containerd/blob/main/docs/hosts.md
func (n *Node) TrustRegistry(name, address, ca string) error {
	dir := filepath.Join(n.file("registries"), name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "ca.crt"), []byte(ca), 0o644); err != nil {
		return err
	}
	hosts := fmt.Sprintf("server = \"https://%s\"\nca = \"ca.crt\"\n", address)
	return os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(hosts), 0o644)
}
