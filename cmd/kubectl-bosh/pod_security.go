package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/cluster"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/kube"
)

// allowPrivileged sets the namespace's Pod Security label to privileged, so that VM Pods are admitted. It first records the original value,
// for `down`.
func (r *environmentRun) allowPrivileged(ctx context.Context, original string) error {
	recorded := r.settings.PreviousPodSecurity
	r.settings.PreviousPodSecurity = &original
	if err := r.dir.WriteSettings(r.settings); err != nil {
		return err
	}
	current, err := r.cluster.SetPodSecurity(ctx, original, cluster.PodSecurityPrivileged)
	if apierrors.IsForbidden(err) {
		r.settings.PreviousPodSecurity = recorded
		return errors.Join(fmt.Errorf("%w; an administrator can run: %s", err, labelCommand(r.settings.Namespace, cluster.PodSecurityPrivileged)),
			r.dir.WriteSettings(r.settings))
	}
	if err != nil {
		return err
	}
	if current != original {
		r.settings.PreviousPodSecurity = recorded
		return errors.Join(fmt.Errorf("label %s of Namespace %s was changed to %q after the inspection; run `kubectl bosh up` again",
			cluster.PodSecurityLabel, r.settings.Namespace, current), r.dir.WriteSettings(r.settings))
	}
	r.relabeled = true
	r.report("Namespace "+r.settings.Namespace, cluster.PodSecurityLabel+"="+cluster.PodSecurityPrivileged+" instead of "+orNone(original))
	return nil
}

// restorePodSecurity restores the label changed by `up`, unless someone changed it since, or VMs or disks that create-env did
// not create still require it.
func (r *environmentRun) restorePodSecurity(ctx context.Context, deployed []string) error {
	original := r.settings.PreviousPodSecurity
	if original == nil {
		return nil
	}
	title := "Namespace " + r.settings.Namespace
	if len(deployed) > 0 {
		r.report(title, "keeps "+cluster.PodSecurityLabel+"="+cluster.PodSecurityPrivileged+" for the remaining resources; "+
			"once they are deleted, `kubectl bosh down` without --force restores "+orNone(*original))
		return nil
	}
	current, err := r.cluster.SetPodSecurity(ctx, cluster.PodSecurityPrivileged, *original)
	switch {
	case apierrors.IsForbidden(err):
		r.report(title, "keeps "+cluster.PodSecurityLabel+"="+cluster.PodSecurityPrivileged+", which you do not have permission to change; "+
			"an administrator can run: "+labelCommand(r.settings.Namespace, *original))
		return nil
	case apierrors.IsNotFound(err):
	case err != nil:
		return err
	case current == cluster.PodSecurityPrivileged:
		r.report(title, cluster.PodSecurityLabel+" restored to "+orNone(*original))
	default:
		r.report(title, cluster.PodSecurityLabel+" kept at "+orNone(current)+": it was changed after `up`")
	}
	r.settings.PreviousPodSecurity = nil
	return r.dir.WriteSettings(r.settings)
}

// labelCommand returns the command that sets the label to this level; "" removes the label.
func labelCommand(namespace, level string) string {
	label := cluster.PodSecurityLabel + "=" + level
	if level == "" {
		label = cluster.PodSecurityLabel + "-"
	}
	return "kubectl label --overwrite namespace " + namespace + " " + label
}

func orNone(label string) string { return cmp.Or(label, "(no label)") }

// waitForPodSecurity waits until the API server applies the changed label, which takes a moment. The preflight checks report other
// reasons why VM Pods are not admitted.
func waitForPodSecurity(ctx context.Context, client *kube.Client) error {
	return cluster.WaitForEffect(ctx, func(ctx context.Context) bool {
		err := tryCreate(ctx, client)
		return err == nil || !strings.Contains(err.Error(), "violates PodSecurity")
	})
}

// tryCreate returns the error with which the API server rejects a VM Pod with unknown images.
func tryCreate(ctx context.Context, client *kube.Client) error {
	pod := manifest.VM{Name: "agent-probe", Namespace: client.Namespace, Image: "probe", NodeImage: "probe"}.Pod()
	_, err := client.Pods.DryRunCreate(ctx, pod.Pod)
	return err
}
