package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/cluster"
	"bosh-kubernetes-cpi/kube"
)

// restrict applies the admission policy and the network policies of a restricted director.
func (r *environmentRun) restrict(ctx context.Context) error {
	objects, err := r.dir.RestrictionObjects()
	if err != nil {
		return err
	}
	if err := r.applyObjects(ctx, objects, "--restricted requires an administrator"); err != nil {
		return err
	}
	if err := r.cluster.SetPolicy(ctx, true); err != nil {
		return fmt.Errorf("label Namespace %s with %s=on: %w; an administrator can set the label", r.settings.Namespace, cluster.PolicyLabel, err)
	}
	r.report("Namespace "+r.settings.Namespace, "the admission policy applies ("+cluster.PolicyLabel+"=on)")
	return nil
}

// waitForPolicy waits until the API server applies the admission policy, which takes a moment. The preflight checks report what it rejects.
func waitForPolicy(ctx context.Context, client *kube.Client) error {
	return waitForAdmission(ctx, client, func(err error) bool {
		return err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'bosh-cpi-") &&
			!strings.Contains(err.Error(), "no params found")
	})
}

// liftRestrictions removes the restrictions of the namespace. It keeps the admission policy: some API servers reject objects in other
// restricted namespaces after it was deleted, until they restart.
func (r *environmentRun) liftRestrictions(ctx context.Context, deployed []string) error {
	if !r.settings.Restricted {
		return nil
	}
	if len(deployed) > 0 {
		r.report("restrictions", "kept for the remaining VMs and disks")
		return nil
	}
	if err := r.cluster.SetPolicy(ctx, false); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove label %s of Namespace %s: %w", cluster.PolicyLabel, r.settings.Namespace, err)
	}
	objects, err := r.dir.RestrictionObjects()
	if err != nil {
		return err
	}
	for _, object := range slices.Backward(objects) {
		if object.GetNamespace() == "" {
			r.report(cluster.KindAndName(object), "kept for other namespaces")
			continue
		}
		outcome, err := r.cluster.Delete(ctx, object)
		if err != nil {
			return fmt.Errorf("delete %s: %w", cluster.KindAndName(object), err)
		}
		r.report(cluster.KindAndName(object), outcome)
	}
	return nil
}
