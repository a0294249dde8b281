package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// systemNamespace exists in every cluster, and lives as long as the cluster does: its UID identifies the cluster.
const systemNamespace = "kube-system"

// Identity is what one cluster is told from another by, and how one operator reaches it.
type Identity struct {
	Server      string   `json:"server"`
	Context     string   `json:"context,omitempty"`     // of the operator's kubeconfig
	UID         string   `json:"uid,omitempty"`         // of the namespace kube-system; "" if the operator may not get it
	Authorities []string `json:"authorities,omitempty"` // fingerprints of the certificates by which the server is verified
}

// Identify returns the cluster's identity.
func (c *Cluster) Identify(ctx context.Context) (Identity, error) {
	// Its errors name credentials that expired.
	server, err := c.Client.GetServerInfo(ctx)
	if err != nil {
		return Identity{}, err
	}
	identity := Identity{Server: server.URL, Context: c.context}
	config := rest.CopyConfig(c.config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return identity, err
	}
	identity.Authorities = Fingerprints(config.CAData)
	system, err := c.objects.Resource(kinds["Namespace"]).Get(ctx, systemNamespace, metav1.GetOptions{})
	if apierrors.IsForbidden(err) {
		return identity, nil
	}
	if err != nil {
		return identity, fmt.Errorf("get Namespace %s: %w", systemNamespace, err)
	}
	identity.UID = string(system.GetUID())
	return identity, nil
}

// Fingerprints are the SHA-256 sums of a bundle's certificates.
func Fingerprints(bundle []byte) []string {
	var found []string
	for {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			slices.Sort(found)
			return slices.Compact(found)
		}
		sum := sha256.Sum256(block.Bytes)
		found = append(found, hex.EncodeToString(sum[:]))
	}
}

// Mismatch is why the cluster that is reached now is not this one, which was recorded; "" if it is. Where a UID is missing, both
// the URL and an authority have to match: clusters behind one gateway share the authority, and clusters on laptops the URL.
func (i Identity) Mismatch(now Identity) string {
	common := func(authority string) bool { return slices.Contains(now.Authorities, authority) }
	const noUID = "whether both are one cluster is not known without the right to get the namespace " + systemNamespace
	switch {
	case i.UID != "" && now.UID == i.UID:
		return ""
	case i.UID != "" && now.UID != "":
		return fmt.Sprintf("the namespace %s has the UID %s there, and %s here", systemNamespace, i.UID, now.UID)
	case i.Server != now.Server:
		return "the servers have different names, and " + noUID
	case len(i.Authorities) > 0 && len(now.Authorities) > 0 && !slices.ContainsFunc(i.Authorities, common):
		return "the certificate authorities are different, and " + noUID
	}
	return ""
}

// String names the server and the context.
func (i Identity) String() string {
	if i.Context == "" {
		return i.Server
	}
	return i.Server + " (context " + i.Context + ")"
}
