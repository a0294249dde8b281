package cluster

import (
	"context"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"bosh-kubernetes-cpi/kube"
)

// Account is the CPI's service account, TokenSecret is the Secret with its token that does not expire, and AttachmentQuota is the
// ResourceQuota that admits attachment Pods.
const (
	Account         = "bosh-cpi"
	TokenSecret     = "bosh-cpi-token"
	AttachmentQuota = "bosh-attachments"
)

// retryTimeout bounds how long requests are retried while the API server is unreachable.
const retryTimeout = 5 * time.Second

// Each run requires requiredPermissions. It also requires setupPermissions if the namespace and the CPI's RBAC objects do not exist
// yet. The lists omit the CPI's own permissions, which a user must also have in order to grant them.
var (
	requiredPermissions = []kube.Permission{
		{Resource: "serviceaccounts/token", Verb: "create", Name: Account},
		{Resource: "pods", Verb: "get"},
		{Resource: "pods", Verb: "list"},
		{Resource: "services", Verb: "list"},
		{Resource: "pods/portforward", Verb: "create"},
	}
	setupPermissions = []kube.Permission{
		{Resource: "namespaces", Verb: "create", ClusterScoped: true},
		{Resource: "serviceaccounts", Verb: "create"},
		{Resource: "resourcequotas", Verb: "create"},
		{Group: "rbac.authorization.k8s.io", Resource: "roles", Verb: "create"},
		{Group: "rbac.authorization.k8s.io", Resource: "rolebindings", Verb: "create"},
		{Group: "rbac.authorization.k8s.io", Resource: "clusterroles", Verb: "create", ClusterScoped: true},
		{Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings", Verb: "create", ClusterScoped: true},
	}
)

func (c *Cluster) inspectPermissions(ctx context.Context, result *Inspection) (string, error) {
	reviewer := c.Client.Reviewer()
	permissions := requiredPermissions
	accounts := c.dynamicClient.Resource(resourcesByKind["ServiceAccount"]).Namespace(c.Client.Namespace)
	if _, err := accounts.Get(ctx, Account, metav1.GetOptions{}); err != nil {
		permissions = slices.Concat(setupPermissions, requiredPermissions)
	}
	for _, permission := range permissions {
		allowed, err := reviewer.IsAllowed(ctx, permission)
		if err != nil {
			return "", err
		}
		if !allowed {
			result.MissingPermissions = append(result.MissingPermissions, permission.String())
		}
	}
	if len(result.MissingPermissions) > 0 {
		return "missing: " + strings.Join(result.MissingPermissions, ", ") +
			"; an administrator can apply the output of `kubectl bosh up --print-permissions --namespace " + c.Client.Namespace + "`", nil
	}
	return "sufficient", nil
}

// WaitForPermissions waits until the API server applies the new RBAC objects, which takes a moment. It returns nil if permissions are
// still missing after 10 seconds, because the preflight checks report them.
func WaitForPermissions(ctx context.Context, client *kube.Client) error {
	reviewer := client.Reviewer()
	return WaitForEffect(ctx, func(ctx context.Context) bool {
		for _, permission := range []kube.Permission{{Resource: "pods", Verb: "create"}, {Resource: "nodes", Verb: "list", ClusterScoped: true}} {
			if allowed, err := reviewer.IsAllowed(ctx, permission); err != nil || !allowed {
				return false
			}
		}
		return true
	})
}

// WaitForEffect waits until a change takes effect in the API server, but for at most 10 seconds. Only the end of the context is an error.
func WaitForEffect(ctx context.Context, hasEffect func(context.Context) bool) error {
	_ = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, 10*time.Second, true, func(ctx context.Context) (bool, error) {
		return hasEffect(ctx), nil
	})
	return ctx.Err()
}
