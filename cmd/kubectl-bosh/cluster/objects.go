package cluster

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/kube/manifest"
)

// manager is in the label of what this program has made: it removes nothing else.
const manager = "kubectl-bosh"

// kinds are those of the objects that are asked for here, with the names of their lists.
var kinds = map[string]schema.GroupVersionResource{
	"Namespace":          {Version: "v1", Resource: "namespaces"},
	"ServiceAccount":     {Version: "v1", Resource: "serviceaccounts"},
	"Secret":             {Version: "v1", Resource: "secrets"},
	"Role":               {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"},
	"RoleBinding":        {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
	"ClusterRole":        {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
	"SelfSubjectReview":  {Group: "authentication.k8s.io", Version: "v1", Resource: "selfsubjectreviews"},
	"ClusterRoleBinding": {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
}

func (c *Cluster) among(object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind, known := kinds[object.GetKind()]
	if !known {
		return nil, fmt.Errorf("%s: no object of this kind is made here: apply it yourself", Title(object))
	}
	if object.GetNamespace() == "" {
		return c.objects.Resource(kind), nil
	}
	return c.objects.Resource(kind).Namespace(object.GetNamespace()), nil
}

// Title is the object's kind and name.
func Title(object *unstructured.Unstructured) string {
	if object.GetNamespace() == "" {
		return object.GetKind() + " " + object.GetName()
	}
	return object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()
}

// Bring makes the object, or changes it to what is wanted, and says which.
func (c *Cluster) Bring(ctx context.Context, wanted *unstructured.Unstructured) (string, error) {
	among, err := c.among(wanted)
	if err != nil {
		return "", err
	}
	isNamespace := wanted.GetKind() == "Namespace"
	there, err := among.Get(ctx, wanted.GetName(), metav1.GetOptions{})
	if err == nil && isNamespace {
		wanted = withoutPodSecurity(wanted) // what Pods an existing namespace allows, SetPodSecurity alone changes
	}
	switch {
	case apierrors.IsNotFound(err):
		mine := wanted.DeepCopy()
		labels := mine.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[manifest.LabelManagedBy] = manager
		mine.SetLabels(labels)
		if isNamespace {
			permit(mine)
		}
		_, err := among.Create(ctx, mine, metav1.CreateOptions{FieldManager: manager})
		return "made", err
	case err != nil:
		return "", err
	case holds(there, wanted):
		return "is there", nil
	}
	content, err := json.Marshal(wanted)
	if err != nil {
		return "", err
	}
	_, err = among.Patch(ctx, wanted.GetName(), types.MergePatchType, content, metav1.PatchOptions{FieldManager: manager})
	if apierrors.IsForbidden(err) {
		return "stays: it is not as rights.yaml has it, and you may not change it", nil // the check shows whether it is enough
	}
	return "changed", err
}

// holds reports whether the object is as wanted, but for what else it has.
func holds(there, wanted *unstructured.Unstructured) bool {
	labels := there.GetLabels()
	for key, value := range wanted.GetLabels() {
		if labels[key] != value {
			return false
		}
	}
	for key, value := range wanted.Object {
		switch key {
		case "apiVersion", "kind", "metadata":
		default:
			if !equality.Semantic.DeepEqual(there.Object[key], value) {
				return false
			}
		}
	}
	return true
}

// Remove deletes the object if this program has made it, and says what became of it.
func (c *Cluster) Remove(ctx context.Context, wanted *unstructured.Unstructured) (string, error) {
	among, err := c.among(wanted)
	if err != nil {
		return "", err
	}
	there, err := among.Get(ctx, wanted.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "is gone", nil
	case err != nil:
		return "", err
	case there.GetLabels()[manifest.LabelManagedBy] != manager:
		return "stays: `up` has not made it", nil
	}
	if there.GetKind() == "Namespace" {
		left, err := c.left(ctx)
		if err != nil || left != "" {
			return "stays: " + left, err
		}
	}
	uid := there.GetUID()
	err = among.Delete(ctx, there.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	return "deleted", err
}

// left says what of value there is in the client's namespace; "" for nothing.
func (c *Cluster) left(ctx context.Context) (string, error) {
	pods, err := c.Client.Pods.List(ctx, kube.Selection{})
	if err != nil {
		return "", err
	}
	claims, err := c.Client.PVCs.List(ctx, kube.Selection{})
	if err != nil {
		return "", err
	}
	services, err := c.Client.Services.List(ctx, kube.Selection{})
	if err != nil || len(pods.Items)+len(claims.Items)+len(services.Items) == 0 {
		return "", err
	}
	return fmt.Sprintf("there are %d Pods, %d PersistentVolumeClaims and %d Services in it",
		len(pods.Items), len(claims.Items), len(services.Items)), nil
}

// AwaitAccount waits until the namespace has the ServiceAccount default: the controllers give it to each new namespace, a moment
// later, and no Pod is admitted before. Who may not look goes on.
func (c *Cluster) AwaitAccount(ctx context.Context) error {
	const usual = "default"
	among := c.objects.Resource(kinds["ServiceAccount"]).Namespace(c.Client.Namespace)
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		_, err := among.Get(ctx, usual, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil || apierrors.IsForbidden(err), err
	})
	if err != nil && !apierrors.IsForbidden(err) {
		return fmt.Errorf("ServiceAccount %s/%s, which the controller manager gives to each namespace: %w", c.Client.Namespace, usual, err)
	}
	return nil
}

// Token asks for a token of the service account that lives so long, if the API server gives such, and tells when it ends.
func (c *Cluster) Token(ctx context.Context, account string, life time.Duration) (token string, ends time.Time, err error) {
	request := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": map[string]any{"name": account},
		"spec": map[string]any{"expirationSeconds": int64(life / time.Second)},
	}}
	got, err := c.objects.Resource(kinds["ServiceAccount"]).Namespace(c.Client.Namespace).Create(ctx, request, metav1.CreateOptions{}, "token")
	if err != nil {
		return "", ends, err
	}
	token, _, err = unstructured.NestedString(got.Object, "status", "token")
	if err != nil || token == "" {
		return "", ends, errors.Join(fmt.Errorf("the API server gave no token of ServiceAccount %s/%s", c.Client.Namespace, account), err)
	}
	said, _, _ := unstructured.NestedString(got.Object, "status", "expirationTimestamp")
	ends, _ = time.Parse(time.RFC3339, said)
	return token, ends, nil
}

// SecretToken waits until the Secret has the token that Kubernetes puts there, and returns it with the cluster's authority.
func (c *Cluster) SecretToken(ctx context.Context, name string) (token string, authority []byte, err error) {
	among := c.objects.Resource(kinds["Secret"]).Namespace(c.Client.Namespace)
	err = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		secret, err := among.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		said, _, _ := unstructured.NestedString(secret.Object, "data", "token")
		if said == "" {
			return false, nil
		}
		raw, err := base64.StdEncoding.DecodeString(said)
		if err != nil {
			return false, err
		}
		token = string(raw)
		said, _, _ = unstructured.NestedString(secret.Object, "data", "ca.crt")
		authority, err = base64.StdEncoding.DecodeString(said)
		return err == nil, err
	})
	if err != nil {
		return "", nil, fmt.Errorf("the token of Secret %s/%s: %w", c.Client.Namespace, name, err)
	}
	return token, authority, nil
}
