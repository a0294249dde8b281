package cluster

import (
	"context"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"bosh-kubernetes-cpi/kube"
)

// Account is the CPI's service account, and TokenSecret the Secret with a token of it that does not end.
const (
	Account     = "bosh-cpi"
	TokenSecret = "bosh-cpi-token"
)

// patience is how long a request is repeated while the API server cannot be reached.
const patience = 5 * time.Second

// needed are the rights that every run takes, and neededToMake those that it takes where nobody has made the namespace and the
// CPI's rights yet. The latter does not name the CPI's own rights: nobody can give what he has not.
var (
	needed = []kube.Right{
		{Resource: "serviceaccounts/token", Verb: "create", Name: Account},
		{Resource: "pods", Verb: "list"},
		{Resource: "services", Verb: "list"},
		{Resource: "pods/portforward", Verb: "create"},
	}
	neededToMake = []kube.Right{
		{Resource: "namespaces", Verb: "create", ClusterScoped: true},
		{Resource: "serviceaccounts", Verb: "create"},
		{Group: "rbac.authorization.k8s.io", Resource: "roles", Verb: "create"},
		{Group: "rbac.authorization.k8s.io", Resource: "rolebindings", Verb: "create"},
		{Group: "rbac.authorization.k8s.io", Resource: "clusterroles", Verb: "create", ClusterScoped: true},
		{Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings", Verb: "create", ClusterScoped: true},
	}
)

func (c *Cluster) lookAtRights(ctx context.Context, f *Found) (string, error) {
	reviewer, err := c.Client.Reviewer()
	if err != nil {
		return "", err
	}
	rights := needed
	if !c.prepared(ctx) {
		rights = slices.Concat(neededToMake, needed)
	}
	for _, right := range rights {
		may, err := reviewer.IsAllowed(ctx, right)
		if err != nil {
			return "", err
		}
		if !may {
			f.Missing = append(f.Missing, right.String())
		}
	}
	if len(f.Missing) > 0 {
		return "missing: " + strings.Join(f.Missing, ", ") + "; `kubectl bosh up --print-rights` prints what an administrator can apply", nil
	}
	return "all that this takes", nil
}

// prepared reports whether the CPI's account exists.
func (c *Cluster) prepared(ctx context.Context) bool {
	_, err := c.objects.Resource(kinds["ServiceAccount"]).Namespace(c.Client.Namespace).Get(ctx, Account, metav1.GetOptions{})
	return err == nil
}

// User is the name by which the API server knows whoever asks.
func (c *Cluster) User(ctx context.Context) (string, error) {
	review := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}}
	got, err := c.objects.Resource(kinds["SelfSubjectReview"]).Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	name, _, err := unstructured.NestedString(got.Object, "status", "userInfo", "username")
	return name, err
}

// IsForbidden reports whether a right is missing.
func IsForbidden(err error) bool { return apierrors.IsForbidden(err) }

// IsNotFound reports whether the object does not exist.
func IsNotFound(err error) bool { return apierrors.IsNotFound(err) }
