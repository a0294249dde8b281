package embedded

import (
	"fmt"
	"os"
	"path/filepath"
)

// ClusterDNS is the address of the cluster's DNS, a CoreDNS process at the first node's address.
var ClusterDNS = nodeAddress(0)

func (c *Cluster) dns() Process {
	return Process{Name: "coredns", Dir: c.Dir, Args: []string{"coredns", "-conf", c.corefile(), "-dns.port", "53"}}
}

func (c *Cluster) corefile() string { return filepath.Join(c.Dir, "Corefile") }

// startDNS starts CoreDNS, which resolves the cluster's Services and forwards other names to the host's name servers.
func (c *Cluster) startDNS() error {
	content := fmt.Sprintf(corefile, ClusterDNS, c.ControlPlane.Kubeconfig("dns"))
	if err := os.WriteFile(c.corefile(), []byte(content), 0o644); err != nil {
		return err
	}
	return c.dns().Start()
}

const corefile = `. {
  bind %[1]s
  errors
  kubernetes cluster.local in-addr.arpa ip6.arpa {
    kubeconfig %[2]s
  }
  forward . /etc/resolv.conf
}
`
