package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

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
	enabled, err := r.cluster.HasPolicy(ctx)
	if err != nil || enabled {
		return err
	}
	r.settings.PolicyEnabled = true // before the change, so that `down` reverts it
	if err := r.dir.WriteSettings(r.settings); err != nil {
		return err
	}
	if err := r.cluster.EnablePolicy(ctx); err != nil {
		err = fmt.Errorf("label Namespace %s with %s=on: %w; an administrator can set the label", r.settings.Namespace, cluster.PolicyLabel, err)
		if apierrors.IsForbidden(err) {
			r.settings.PolicyEnabled = false // the label will be the administrator's
			err = errors.Join(err, r.dir.WriteSettings(r.settings))
		}
		return err
	}
	return nil
}

// verifyPolicy waits until the API server applies the admission policy, which takes a moment. It fails if the policy does not reject a Pod
// with an unknown image.
func (r *environmentRun) verifyPolicy(ctx context.Context) error {
	client, err := r.newCPIClient()
	if err != nil {
		return err
	}
	var response error
	err = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		err := tryCreate(ctx, client)
		if ctx.Err() == nil {
			response = err
		}
		return errors.Is(err, kube.ErrDenied) && strings.Contains(err.Error(), "rule images"), nil
	})
	switch {
	case err != nil && response != nil && ctx.Err() == nil:
		return fmt.Errorf("cannot verify that the admission policy is in effect in namespace %s: a Pod with another image than those in the "+
			"limits fails for another reason, which VMs may have, too: %w; see docs/reference/preflight.md", r.settings.Namespace, response)
	case err != nil:
		return fmt.Errorf("the admission policy is not in effect in namespace %s: the API server does not reject a Pod with another image "+
			"than those in the limits; see `kubectl describe validatingadmissionpolicies,validatingadmissionpolicybindings`: %w",
			r.settings.Namespace, err)
	}
	r.report("Namespace "+r.settings.Namespace, "the admission policy is in effect ("+cluster.PolicyLabel+"=on)")
	return nil
}

// liftRestrictions removes the restrictions of the namespace that `up` added, unless VMs or disks remain. It keeps the admission policy:
// some API servers reject objects in other restricted namespaces after it was deleted, until they restart.
func (r *environmentRun) liftRestrictions(ctx context.Context, deployed []string) error {
	if !r.settings.Restricted {
		return nil
	}
	if len(deployed) > 0 {
		r.report("restrictions", "kept for the remaining VMs and disks")
		return nil
	}
	if r.settings.PolicyEnabled {
		if err := r.disablePolicy(ctx); err != nil {
			return err
		}
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
		if err := r.deleteObject(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

// disablePolicy removes the label that `up` set.
func (r *environmentRun) disablePolicy(ctx context.Context) error {
	switch err := r.cluster.DisablePolicy(ctx); {
	case apierrors.IsForbidden(err):
		r.report("Namespace "+r.settings.Namespace, "keeps "+cluster.PolicyLabel+", which you do not have permission to change; "+
			"an administrator can run: kubectl label namespace "+r.settings.Namespace+" "+cluster.PolicyLabel+"-")
		return nil
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("remove label %s of Namespace %s: %w", cluster.PolicyLabel, r.settings.Namespace, err)
	}
	r.settings.PolicyEnabled = false
	return r.dir.WriteSettings(r.settings)
}
