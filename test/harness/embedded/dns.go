package embedded

import (
	"fmt"
	"os"
	"path/filepath"
)

// ClusterDNS is the address of the cluster's DNS, a CoreDNS process at the first node's address.
var ClusterDNS = nodeAddress(0)

func (c *Cluster) dnsProcess() Process {
	return Process{Name: "coredns", Dir: c.Dir, Args: []string{"coredns", "-conf", c.corefilePath(), "-dns.port", "53"}}
}

func (c *Cluster) corefilePath() string { return filepath.Join(c.Dir, "Corefile") }

// startDNS starts CoreDNS, which resolves the cluster's Services and forwards other names to the host's name servers.
func (c *Cluster) startDNS() error {
	content := fmt.Sprintf(corefileTemplate, ClusterDNS, c.ControlPlane.Kubeconfig("dns"))
	if err := os.WriteFile(c.corefilePath(), []byte(content), 0o644); err != nil {
		return err
	}
	return c.dnsProcess().Start()
}

const corefileTemplate = `. {
  bind %[1]s
  errors
  kubernetes cluster.local in-addr.arpa ip6.arpa {
    kubeconfig %[2]s
  }
  forward . /etc/resolv.conf
}
`
