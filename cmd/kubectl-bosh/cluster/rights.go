package cluster

import (
	"context"
	"strings"
	"time"

	"bosh-kubernetes-cpi/kube"
)

// patience is how long a request is repeated while the API server cannot be reached.
const patience = 5 * time.Second

// needed are the rights that bringing up a director takes, beside those that it is to get: nobody can give what he has not.
var needed = []kube.Right{
	{Resource: "namespaces", Verb: "create", Cluster: true},
	{Resource: "serviceaccounts", Verb: "create"},
	{Resource: "serviceaccounts/token", Verb: "create"},
	{Group: "rbac.authorization.k8s.io", Resource: "roles", Verb: "create"},
	{Group: "rbac.authorization.k8s.io", Resource: "rolebindings", Verb: "create"},
	{Group: "rbac.authorization.k8s.io", Resource: "clusterroles", Verb: "create", Cluster: true},
	{Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings", Verb: "create", Cluster: true},
	{Resource: "pods", Verb: "list"},
	{Resource: "services", Verb: "list"},
	{Resource: "pods/portforward", Verb: "create"},
}

func (c *Cluster) lookAtRights(ctx context.Context, f *Found) (string, error) {
	reviewer, err := c.Client.Reviewer()
	if err != nil {
		return "", err
	}
	for _, right := range needed {
		may, err := reviewer.May(ctx, right)
		if err != nil {
			return "", err
		}
		if !may {
			f.Missing = append(f.Missing, right.String())
		}
	}
	if len(f.Missing) > 0 {
		return "missing: " + strings.Join(f.Missing, ", "), nil
	}
	return "all that this takes", nil
}
