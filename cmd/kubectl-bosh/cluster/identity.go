package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/pem"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// systemNamespace exists in every cluster for the cluster's whole lifetime, so its UID identifies the cluster.
const systemNamespace = "kube-system"

// Identity distinguishes a cluster from others, and describes how an operator reaches it.
type Identity struct {
	Server      string   `json:"server"`
	Context     string   `json:"context,omitempty"`     // context of the operator's kubeconfig
	UID         string   `json:"uid,omitempty"`         // of namespace kube-system; "" without permission to get it
	Authorities []string `json:"authorities,omitempty"` // fingerprints of the server's CA certificates
}

// Identify returns the cluster's identity.
func (c *Cluster) Identify(ctx context.Context) (Identity, error) {
	// GetServerInfo's errors report expired credentials.
	server, err := c.Client.GetServerInfo(ctx)
	if err != nil {
		return Identity{}, err
	}
	identity := Identity{Server: server.URL, Context: c.contextName}
	config := rest.CopyConfig(c.config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return identity, err
	}
	identity.Authorities = Fingerprints(config.CAData)
	system, err := c.dynamicClient.Resource(resourcesByKind["Namespace"]).Get(ctx, systemNamespace, metav1.GetOptions{})
	if apierrors.IsForbidden(err) {
		return identity, nil
	}
	if err != nil {
		return identity, fmt.Errorf("get Namespace %s: %w", systemNamespace, err)
	}
	identity.UID = string(system.GetUID())
	return identity, nil
}

// Fingerprints returns the SHA-256 sums of the certificates in a PEM bundle, sorted.
func Fingerprints(bundle []byte) []string {
	var sums []string
	for {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			slices.Sort(sums)
			return slices.Compact(sums)
		}
		sums = append(sums, fmt.Sprintf("%x", sha256.Sum256(block.Bytes)))
	}
}

// Mismatch returns the reason why current is another cluster than the recorded i, or "" if they are the same. If a UID is unknown, both
// the URL and a CA certificate must match: clusters behind one gateway have the same CA, and clusters on laptops often
// have the same URL.
func (i Identity) Mismatch(current Identity) string {
	shared := func(authority string) bool { return slices.Contains(current.Authorities, authority) }
	const noUID = "whether they are the same cluster is unknown without permission to get namespace " + systemNamespace
	switch {
	case i.UID != "" && current.UID == i.UID:
		return ""
	case i.UID != "" && current.UID != "":
		return fmt.Sprintf("namespace %s has the UID %s there and %s here", systemNamespace, i.UID, current.UID)
	case i.Server != current.Server:
		return "the URLs of the servers differ, and " + noUID
	case len(i.Authorities) > 0 && len(current.Authorities) > 0 && !slices.ContainsFunc(i.Authorities, shared):
		return "the CA certificates differ, and " + noUID
	}
	return ""
}

// String returns the URL of the server, with the context of the kubeconfig.
func (i Identity) String() string {
	if i.Context == "" {
		return i.Server
	}
	return i.Server + " (context " + i.Context + ")"
}
