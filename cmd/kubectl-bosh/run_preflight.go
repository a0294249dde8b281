package main

import (
	"context"
	"errors"
	"slices"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/cluster"
	"bosh-kubernetes-cpi/cmd/kubectl-bosh/environment"
	"bosh-kubernetes-cpi/cpi"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/cpi/preflight"
	"bosh-kubernetes-cpi/kube"
)

// runPreflight runs the preflight checks with the CPI's permissions, and prints the failed ones. For a new director with in-cluster
// credentials, it also checks whether a Pod reaches the API server, unless the image of the stemcell is unknown.
func (r *environmentRun) runPreflight(ctx context.Context, plan *environment.Plan, desired environment.Manifest) error {
	client, err := r.newCPIClient()
	if err != nil {
		return err
	}
	if err := cluster.WaitForPermissions(ctx, client); err != nil {
		return err
	}
	if r.relabeled {
		if err := waitForPodSecurity(ctx, client); err != nil {
			return err
		}
	}
	config := cpi.DefaultConfig()
	image, nodeImage := plan.Images(ctx, desired)
	config.NodeImage = nodeImage
	results := preflight.Run(ctx, config, client, image)
	if preflight.Passed(results) {
		r.report("check", "all required preflight checks passed (`"+
			environment.QuoteCommand([]string{"kubectl", "bosh", "check", "--kubeconfig", r.dir.KubeconfigPath()})+"` shows them)")
		return r.checkAPIAccess(ctx, config, client, image)
	}
	if err := r.writeFailed(results); err != nil {
		return err
	}
	return errors.New("preflight checks failed in namespace " + r.settings.Namespace + "; see the remedies above and " +
		"docs/reference/preflight.md, or skip the checks with --no-check")
}

// newCPIClient returns a client with the permissions of the CPI that create-env runs.
func (r *environmentRun) newCPIClient() (*kube.Client, error) {
	options := kube.Options{KubeconfigPath: r.dir.KubeconfigPath(), Namespace: r.settings.Namespace}
	return kube.New(options, manifest.ManagedBy, retryTimeout)
}

// checkAPIAccess fails if a VM cannot reach the API server: a director with in-cluster credentials would start, but its CPI would fail. If
// it can, other failed deep checks are only printed: the director's manifest may have settings that make them succeed.
func (r *environmentRun) checkAPIAccess(ctx context.Context, config cpi.Config, client *kube.Client, image string) error {
	if directorUUID, err := r.dir.DirectorUUID(); err != nil || directorUUID != "" || image == "" ||
		r.settings.Credentials != environment.CredentialsInCluster {
		return err
	}
	r.report("check", "Pods of the stemcell run for up to a minute, to check whether VMs reach the API server")
	results := preflight.RunDeep(ctx, config, client, image, nil)
	if err := checkInterrupted(ctx, "create-env"); err != nil {
		return err // the results are those of the interruption
	}
	index := slices.IndexFunc(results, func(result preflight.Result) bool { return result.Check == preflight.CheckInClusterAPI })
	switch access := results[index]; access.Verdict {
	case preflight.OK:
		if len(preflight.Failed(results)) > 0 {
			r.report("check", "VMs reach the API server, but other checks failed, which the director or your deployments may require; continuing")
		}
		return r.writeFailed(preflight.Failed(results))
	case preflight.Fails:
		if err := r.writeFailed([]preflight.Result{access}); err != nil {
			return err
		}
		return errors.New("VMs in namespace " + r.settings.Namespace + " cannot reach the API server, which a director with in-cluster " +
			"credentials requires; see the remedy above, or skip the checks with --no-check")
	}
	reason := results[index].Detail
	if failed := preflight.Failed(results); len(failed) > 0 {
		reason = failed[0].Detail
	}
	r.report("check", "whether VMs reach the API server is not known; continuing, because nodes may still pull the image: "+reason)
	return nil
}

// writeFailed prints the failed results, if there are any.
func (r *environmentRun) writeFailed(results []preflight.Result) error {
	failed := preflight.Failed(results)
	if len(failed) == 0 {
		return nil
	}
	return writeResults(r.command.OutOrStdout(), failed, false)
}
