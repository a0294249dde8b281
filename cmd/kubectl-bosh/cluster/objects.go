package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	"bosh-kubernetes-cpi/cpi/manifest"
)

// fieldManager is also the value of the managed-by label of objects created by this program. The program deletes only objects
// with this label.
const fieldManager = "kubectl-bosh"

// resourcesByKind maps each kind that this package uses to its API resource.
var resourcesByKind = map[string]schema.GroupVersionResource{
	"Namespace":          {Version: "v1", Resource: "namespaces"},
	"ServiceAccount":     {Version: "v1", Resource: "serviceaccounts"},
	"Secret":             {Version: "v1", Resource: "secrets"},
	"ResourceQuota":      {Version: "v1", Resource: "resourcequotas"},
	"ConfigMap":          {Version: "v1", Resource: "configmaps"},
	"NetworkPolicy":      {Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
	"Role":               {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"},
	"RoleBinding":        {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
	"ClusterRole":        {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
	"ClusterRoleBinding": {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},

	"ValidatingAdmissionPolicy":        {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"},
	"ValidatingAdmissionPolicyBinding": {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"},
}

// restrictingKinds are the kinds of objects that Apply does not change if this program did not create them: an administrator may have
// restricted the namespace before, or another director. Their content is replaced, not merged.
var restrictingKinds = []string{"ConfigMap", "NetworkPolicy", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}

func (c *Cluster) resourceClient(object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	resource, known := resourcesByKind[object.GetKind()]
	if !known {
		return nil, fmt.Errorf("unsupported kind %s; apply the object yourself", object.GetKind())
	}
	return c.dynamicClient.Resource(resource).Namespace(object.GetNamespace()), nil // "" for cluster-scoped kinds
}

// Results of Apply and Delete.
const (
	unchanged  = "unchanged"
	notCreated = "kept: not created by `up`"
)

// KindAndName returns the kind and name of the object, for example Role bosh/bosh-cpi.
func KindAndName(object *unstructured.Unstructured) string {
	if object.GetNamespace() == "" {
		return object.GetKind() + " " + object.GetName()
	}
	return object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()
}

// Apply creates the object or updates it to the desired state, and returns a description of the result, for example "created".
func (c *Cluster) Apply(ctx context.Context, desired *unstructured.Unstructured) (string, error) {
	client, err := c.resourceClient(desired)
	if err != nil {
		return "", err
	}
	isNamespace := desired.GetKind() == "Namespace"
	existing, err := client.Get(ctx, desired.GetName(), metav1.GetOptions{})
	if err == nil && isNamespace && existing.GetDeletionTimestamp() != nil {
		if err := c.waitForNamespaceDeletion(ctx); err != nil {
			return "", err
		}
		existing, err = client.Get(ctx, desired.GetName(), metav1.GetOptions{})
	}
	if err == nil && isNamespace {
		desired = withoutPodSecurity(desired) // only SetPodSecurity changes this label of an existing namespace
	}
	switch {
	case apierrors.IsNotFound(err):
		labels := map[string]string{}
		maps.Copy(labels, desired.GetLabels())
		labels[manifest.LabelManagedBy] = fieldManager
		if isNamespace { // admits VM Pods, unless permissions.yaml sets another level
			labels[PodSecurityLabel] = cmp.Or(labels[PodSecurityLabel], PodSecurityPrivileged)
		}
		created := desired.DeepCopy()
		created.SetLabels(labels)
		_, err := client.Create(ctx, created, metav1.CreateOptions{FieldManager: fieldManager})
		return "created", err
	case err != nil:
		return "", err
	case matches(existing, desired):
		return unchanged, nil
	case slices.Contains(restrictingKinds, desired.GetKind()):
		return replace(ctx, client, existing, desired)
	}
	content, err := json.Marshal(desired)
	if err != nil {
		return "", err
	}
	_, err = client.Patch(ctx, desired.GetName(), types.MergePatchType, content, metav1.PatchOptions{FieldManager: fieldManager})
	if apierrors.IsForbidden(err) {
		// The preflight checks show whether the existing object is sufficient.
		return "unchanged: it differs from permissions.yaml, but you do not have permission to update it", nil
	}
	return "updated", err
}

// replace replaces the content of a restricting object, so that it does not keep keys that desired lacks. It keeps objects of others.
func replace(ctx context.Context, client dynamic.ResourceInterface, existing, desired *unstructured.Unstructured) (string, error) {
	if !isOwn(existing, desired) {
		return notCreated, nil
	}
	outcome := "updated"
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { // controllers update the status
		current, err := client.Get(ctx, desired.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		replaced := desired.DeepCopy()
		replaced.Object["metadata"] = current.DeepCopy().Object["metadata"]
		updated, err := client.Update(ctx, replaced, metav1.UpdateOptions{FieldManager: fieldManager})
		if err == nil && updated.GetResourceVersion() == current.GetResourceVersion() { // they differed only by the server's defaults
			outcome = unchanged
		}
		return err
	})
	return outcome, err
}

// isOwn reports whether this program created the object, for the same director if it is of one.
func isOwn(existing, desired *unstructured.Unstructured) bool {
	return manifest.ManagerOf(existing) == fieldManager && existing.GetLabels()[LabelDirectorName] == desired.GetLabels()[LabelDirectorName]
}

// matches reports whether existing has the desired labels and fields. It ignores additional labels and fields.
func matches(existing, desired *unstructured.Unstructured) bool {
	labels := existing.GetLabels()
	for key, value := range desired.GetLabels() {
		if labels[key] != value {
			return false
		}
	}
	for key, value := range desired.Object {
		switch key {
		case "apiVersion", "kind", "metadata":
		default:
			if !equality.Semantic.DeepEqual(existing.Object[key], value) {
				return false
			}
		}
	}
	return true
}

// Delete deletes the object if this program created it, and returns a description of the result, for example "deleted".
func (c *Cluster) Delete(ctx context.Context, desired *unstructured.Unstructured) (string, error) {
	client, err := c.resourceClient(desired)
	if err != nil {
		return "", err
	}
	existing, err := client.Get(ctx, desired.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "does not exist", nil
	case err != nil:
		return "", err
	case !isOwn(existing, desired):
		return notCreated, nil
	}
	if existing.GetKind() == "Namespace" {
		remaining, err := c.describeRemaining(ctx)
		if err != nil || remaining != "" {
			return "kept: " + remaining, err
		}
	}
	uid := existing.GetUID()
	err = client.Delete(ctx, existing.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if apierrors.IsNotFound(err) { // deleted with the namespace
		err = nil
	}
	return "deleted", err
}

// keptKinds are the kinds of objects with which down keeps a namespace: data and configuration, and workloads, which may be scaled to zero.
var keptKinds = []schema.GroupVersionResource{
	{Version: "v1", Resource: "pods"},
	{Version: "v1", Resource: "persistentvolumeclaims"},
	{Version: "v1", Resource: "services"},
	{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshots"},
	{Group: "apps", Version: "v1", Resource: "deployments"},
	{Group: "apps", Version: "v1", Resource: "statefulsets"},
	{Group: "apps", Version: "v1", Resource: "daemonsets"},
	{Group: "batch", Version: "v1", Resource: "jobs"},
	{Group: "batch", Version: "v1", Resource: "cronjobs"},
	{Version: "v1", Resource: "secrets"},
	{Version: "v1", Resource: "configmaps"},
}

// isIncidental reports whether an object exists in a namespace without a user: it belongs to Kubernetes, this program, or the CPI.
func isIncidental(object unstructured.Unstructured) bool {
	switch object.GetKind() {
	case "ConfigMap":
		return object.GetName() == "kube-root-ca.crt" || manifest.ManagerOf(&object) == fieldManager
	case "Secret":
		return slices.Contains([]string{fieldManager, manifest.ManagedBy}, manifest.ManagerOf(&object))
	}
	return false
}

// describeRemaining describes the objects of keptKinds in the client's namespace. It returns "" if there are none.
func (c *Cluster) describeRemaining(ctx context.Context) (string, error) {
	var found []string
	for _, kind := range keptKinds {
		objects, err := c.dynamicClient.Resource(kind).Namespace(c.Client.Namespace).List(ctx, metav1.ListOptions{})
		switch {
		case apierrors.IsNotFound(err): // the kind is not installed
			continue
		case apierrors.IsForbidden(err):
			return "you do not have permission to list its " + kind.Resource, nil
		case err != nil:
			return "", err
		}
		if remaining := slices.DeleteFunc(objects.Items, isIncidental); len(remaining) > 0 {
			found = append(found, fmt.Sprintf("%s (%d)", kind.Resource, len(remaining)))
		}
	}
	if len(found) == 0 {
		return "", nil
	}
	return "it contains " + strings.Join(found, ", "), nil
}

// WaitForDefaultServiceAccount waits for the namespace's default ServiceAccount. The API server rejects Pods until it exists. Without
// permission to get it, the method returns immediately.
func (c *Cluster) WaitForDefaultServiceAccount(ctx context.Context) error {
	const name = "default"
	client := c.dynamicClient.Resource(resourcesByKind["ServiceAccount"]).Namespace(c.Client.Namespace)
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		_, err := client.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil || apierrors.IsForbidden(err), err
	})
	if err != nil && !apierrors.IsForbidden(err) {
		return fmt.Errorf("cannot find ServiceAccount %s/%s, which the controller manager creates in each namespace: %w",
			c.Client.Namespace, name, err)
	}
	return nil
}

// WaitForQuota waits until the controller manager has counted the objects of a ResourceQuota in the client's namespace. The API server
// rejects Pods that count until then. If the ResourceQuota does not exist, or without permission to get it, the method returns
// immediately.
func (c *Cluster) WaitForQuota(ctx context.Context, name string) error {
	client := c.dynamicClient.Resource(resourcesByKind["ResourceQuota"]).Namespace(c.Client.Namespace)
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		quota, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return true, err
		}
		used, _, err := unstructured.NestedMap(quota.Object, "status", "used")
		return len(used) > 0, err
	})
	if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot wait until the controller manager sets the status of ResourceQuota %s/%s: %w", c.Client.Namespace, name, err)
	}
	return nil
}

// RequestToken requests a token for the service account with the given lifetime. The API server may issue a token that expires earlier.
func (c *Cluster) RequestToken(ctx context.Context, account string, lifetime time.Duration) (token string, expires time.Time, err error) {
	request := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": map[string]any{"name": account},
		"spec": map[string]any{"expirationSeconds": int64(lifetime / time.Second)},
	}}
	response, err := c.dynamicClient.Resource(resourcesByKind["ServiceAccount"]).Namespace(c.Client.Namespace).
		Create(ctx, request, metav1.CreateOptions{}, "token")
	if err != nil {
		return "", expires, err
	}
	token, _, err = unstructured.NestedString(response.Object, "status", "token")
	if err != nil || token == "" {
		return "", expires, errors.Join(fmt.Errorf("the API server returned no token for ServiceAccount %s/%s", c.Client.Namespace, account), err)
	}
	expiration, _, _ := unstructured.NestedString(response.Object, "status", "expirationTimestamp")
	expires, _ = time.Parse(time.RFC3339, expiration)
	return token, expires, nil
}

// WaitForSecretToken waits until Kubernetes adds a token to the Secret, and returns the token and the CA certificate.
func (c *Cluster) WaitForSecretToken(ctx context.Context, name string) (token string, caData []byte, err error) {
	err = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		secret, err := c.Client.Secrets.Get(ctx, name)
		if err != nil {
			return false, err
		}
		token, caData = string(secret.Data["token"]), secret.Data["ca.crt"]
		return token != "", nil
	})
	if err != nil {
		return "", nil, fmt.Errorf("cannot read the token of Secret %s/%s: %w", c.Client.Namespace, name, err)
	}
	return token, caData, nil
}
