package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// PodSecurity is the label by which a namespace allows Pods of a kind: Privileged, as VM Pods are.
const (
	podSecurityPrefix = "pod-security.kubernetes.io/"
	PodSecurity       = podSecurityPrefix + "enforce"
	Privileged        = "privileged"
)

// Namespace is the one that a director is in, as it exists.
type Namespace struct {
	Known       bool // the operator may get it
	Exists      bool
	PodSecurity string // the value of its label PodSecurity; "" without one, where the cluster's default counts
}

// RefusesVMs reports whether the label keeps VM Pods out.
func (n Namespace) RefusesVMs() bool { return n.PodSecurity != "" && n.PodSecurity != Privileged }

func (c *Cluster) lookAtNamespace(ctx context.Context, f *Found) (string, error) {
	existing, err := c.namespace(ctx)
	if apierrors.IsNotFound(err) {
		f.Namespace.Known = true
		return c.Client.Namespace + ", which does not exist yet", nil
	}
	if err != nil {
		return "", err
	}
	f.Namespace = Namespace{Known: true, Exists: true, PodSecurity: existing.GetLabels()[PodSecurity]}
	if f.Namespace.PodSecurity == "" {
		return c.Client.Namespace + ", without the label " + PodSecurity, nil
	}
	return c.Client.Namespace + ", with " + PodSecurity + "=" + f.Namespace.PodSecurity, nil
}

func (c *Cluster) namespace(ctx context.Context) (*unstructured.Unstructured, error) {
	return c.objects.Resource(kinds["Namespace"]).Get(ctx, c.Client.Namespace, metav1.GetOptions{})
}

// SetPodSecurity changes the label of the namespace, if it has the value from; "" is no label. It returns the value that the label had.
func (c *Cluster) SetPodSecurity(ctx context.Context, from, to string) (had string, err error) {
	existing, err := c.namespace(ctx)
	if err != nil {
		return "", err
	}
	if had = existing.GetLabels()[PodSecurity]; had != from {
		return had, nil
	}
	var value any // null removes the label
	if to != "" {
		value = to
	}
	// With the version that was read: somebody else's change is not undone.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": existing.GetResourceVersion(), "labels": map[string]any{PodSecurity: value}}})
	if err != nil {
		return had, err
	}
	_, err = c.objects.Resource(kinds["Namespace"]).Patch(ctx, c.Client.Namespace, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: manager})
	if err != nil {
		err = fmt.Errorf("label Namespace %s with %s=%s: %w", c.Client.Namespace, PodSecurity, cmp.Or(to, "(none)"), err)
	}
	return had, err
}

// permit gives a new namespace the label that allows VM Pods, unless it has one.
func permit(wanted *unstructured.Unstructured) {
	labels := wanted.GetLabels()
	if labels[PodSecurity] == "" {
		labels[PodSecurity] = Privileged
		wanted.SetLabels(labels)
	}
}

// withoutPodSecurity is the namespace without labels that would change what Pods it allows.
func withoutPodSecurity(wanted *unstructured.Unstructured) *unstructured.Unstructured {
	wanted = wanted.DeepCopy()
	labels := wanted.GetLabels()
	for key := range labels {
		if strings.HasPrefix(key, podSecurityPrefix) {
			delete(labels, key)
		}
	}
	wanted.SetLabels(labels)
	return wanted
}
