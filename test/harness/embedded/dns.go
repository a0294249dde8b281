package embedded

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// ClusterDNS is the address of the cluster's DNS, a CoreDNS process at the first node's address. It is the only endpoint of the Service kube-dns.
var ClusterDNS = nodeAddress(0)

func (c *Cluster) dnsProcess() Process {
	return Process{Name: "coredns", Dir: c.Dir, Args: []string{"coredns", "-conf", c.corefilePath(), "-dns.port", "53"}}
}

func (c *Cluster) corefilePath() string { return filepath.Join(c.Dir, "Corefile") }

// createAPIEndpoint creates the endpoint of the Service kubernetes, at the first node's address. There the node's bridge forwards
// connections to the API server, which listens on loopback and therefore does not publish its address.
func (c *Cluster) createAPIEndpoint(ctx context.Context) error {
	return c.ControlPlane.Apply(ctx, fmt.Sprintf(apiEndpoint, nodeAddress(0), c.ControlPlane.APIPort))
}

const apiEndpoint = `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: kubernetes, namespace: default, labels: {kubernetes.io/service-name: kubernetes}}
addressType: IPv4
endpoints: [{addresses: [%[1]q], conditions: {ready: true}}]
ports: [{name: https, port: %[2]d, protocol: TCP}]
`

// dnsService contains the Service kube-dns and its endpoint.
const dnsService = `
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system}
spec:
  ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: kube-dns, namespace: kube-system, labels: {kubernetes.io/service-name: kube-dns}}
addressType: IPv4
endpoints: [{addresses: [%q], conditions: {ready: true}}]
ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]
`

// startDNS starts CoreDNS, which resolves the cluster's Services and forwards other names to the host's name servers.
func (c *Cluster) startDNS(ctx context.Context) error {
	content := fmt.Sprintf(corefileTemplate, ClusterDNS, c.ControlPlane.Kubeconfig("dns"))
	if err := os.WriteFile(c.corefilePath(), []byte(content), 0o644); err != nil {
		return err
	}
	if err := c.dnsProcess().Start(); err != nil {
		return err
	}
	return c.ControlPlane.Apply(ctx, fmt.Sprintf(dnsService, ClusterDNS))
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
