package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
)

// PodSecurityLabel is the label with the Pod Security level that a namespace enforces. VM Pods require PodSecurityPrivileged.
const (
	podSecurityPrefix     = "pod-security.kubernetes.io/"
	PodSecurityLabel      = podSecurityPrefix + "enforce"
	PodSecurityPrivileged = "privileged"
)

// PolicyLabel is the label of namespaces in which the admission policy applies, with the value policyOn. LabelDirectorName is the label of
// limits with the name of the director that they are for.
const (
	PolicyLabel       = "bosh.cloudfoundry.org/admission-policy"
	LabelDirectorName = "bosh-director"
	policyOn          = "on"
)

// Namespace is the current state of the director's namespace.
type Namespace struct {
	Known       bool // whether the operator has permission to get it
	Exists      bool
	PodSecurity string // value of PodSecurityLabel; "" without the label, so that the cluster's default applies
}

// RejectsVMs reports whether the label prevents VM Pods from being admitted.
func (n Namespace) RejectsVMs() bool {
	return n.PodSecurity != "" && n.PodSecurity != PodSecurityPrivileged
}

func (c *Cluster) inspectNamespace(ctx context.Context, result *Inspection) (string, error) {
	existing, err := c.getNamespace(ctx)
	if apierrors.IsNotFound(err) {
		result.Namespace.Known = true
		return c.Client.Namespace + " (does not exist yet)", nil
	}
	if err != nil {
		return "", err
	}
	if existing.GetDeletionTimestamp() != nil {
		result.Namespace.Known = true
		return c.Client.Namespace + " (being deleted; up waits until it is gone)", nil
	}
	result.Namespace = Namespace{Known: true, Exists: true, PodSecurity: existing.GetLabels()[PodSecurityLabel]}
	if result.Namespace.PodSecurity == "" {
		return c.Client.Namespace + " (without the label " + PodSecurityLabel + ")", nil
	}
	return c.Client.Namespace + " (" + PodSecurityLabel + "=" + result.Namespace.PodSecurity + ")", nil
}

func (c *Cluster) getNamespace(ctx context.Context) (*unstructured.Unstructured, error) {
	return c.dynamicClient.Resource(resourcesByKind["Namespace"]).Get(ctx, c.Client.Namespace, metav1.GetOptions{})
}

// NamespaceExists reports whether the namespace exists, or may exist: the operator may not have permission to get it.
func (c *Cluster) NamespaceExists(ctx context.Context) (bool, error) {
	_, err := c.getNamespace(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case apierrors.IsForbidden(err):
		return true, nil
	}
	return err == nil, err
}

// waitForNamespaceDeletion waits until the namespace, which is being deleted, is gone. It fails after two minutes.
func (c *Cluster) waitForNamespaceDeletion(ctx context.Context) error {
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := c.getNamespace(ctx)
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, err
	})
	if err != nil {
		return fmt.Errorf("namespace %[1]s is being deleted, and is not gone yet: %[2]w; `kubectl describe namespace %[1]s` shows what remains",
			c.Client.Namespace, err)
	}
	return nil
}

// SetPodSecurity replaces the value of PodSecurityLabel with to if it equals from, and returns the previous value. An empty value means
// that the label is absent.
func (c *Cluster) SetPodSecurity(ctx context.Context, from, to string) (previous string, err error) {
	existing, err := c.getNamespace(ctx)
	if err != nil {
		return "", err
	}
	if previous = existing.GetLabels()[PodSecurityLabel]; previous != from {
		return previous, nil
	}
	var value any // null removes the label
	if to != "" {
		value = to
	}
	// With the resourceVersion, the patch fails instead of reverting a concurrent change.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": existing.GetResourceVersion(), "labels": map[string]any{PodSecurityLabel: value}}})
	if err != nil {
		return previous, err
	}
	_, err = c.dynamicClient.Resource(resourcesByKind["Namespace"]).Patch(ctx, c.Client.Namespace, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: fieldManager})
	if err != nil {
		err = fmt.Errorf("label Namespace %s with %s=%s: %w", c.Client.Namespace, PodSecurityLabel, cmp.Or(to, "(none)"), err)
	}
	return previous, err
}

// HasPolicy reports whether the namespace has PolicyLabel.
func (c *Cluster) HasPolicy(ctx context.Context) (bool, error) {
	existing, err := c.getNamespace(ctx)
	return err == nil && existing.GetLabels()[PolicyLabel] == policyOn, err
}

// EnablePolicy sets PolicyLabel.
func (c *Cluster) EnablePolicy(ctx context.Context) error { return c.setPolicyLabel(ctx, policyOn) }

// DisablePolicy removes PolicyLabel.
func (c *Cluster) DisablePolicy(ctx context.Context) error { return c.setPolicyLabel(ctx, nil) }

// setPolicyLabel sets the label to the value; nil removes it.
func (c *Cluster) setPolicyLabel(ctx context.Context, value any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{PolicyLabel: value}}})
	if err != nil {
		return err
	}
	_, err = c.dynamicClient.Resource(resourcesByKind["Namespace"]).Patch(ctx, c.Client.Namespace, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: fieldManager})
	return err
}

// withoutPodSecurity returns a copy of the namespace without labels for Pod Security.
func withoutPodSecurity(desired *unstructured.Unstructured) *unstructured.Unstructured {
	desired = desired.DeepCopy()
	labels := desired.GetLabels()
	maps.DeleteFunc(labels, func(key, _ string) bool { return strings.HasPrefix(key, podSecurityPrefix) })
	desired.SetLabels(labels)
	return desired
}
