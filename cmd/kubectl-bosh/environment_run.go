package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/cluster"
	"bosh-kubernetes-cpi/cmd/kubectl-bosh/environment"
	"bosh-kubernetes-cpi/cpi"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/cpi/preflight"
	"bosh-kubernetes-cpi/kube"
)

// environmentRun is one run of `up` or `down`.
type environmentRun struct {
	command  *cobra.Command
	options  runOptions
	dir      environment.Dir
	settings environment.Settings
	cluster  *cluster.Cluster
	config   *rest.Config // the operator's
	identity cluster.Identity

	relabeled bool // this run changed the namespace's Pod Security label

	// replaceServer selects when to replace the API server in the kubeconfig of the CPI that create-env runs.
	replaceServer serverReplacement
}

// newEnvironmentRun returns a run for a namespace of the cluster that conn selects, and the cluster's identity to record in the
// directory. It fails if the directory belongs to another cluster.
func newEnvironmentRun(command *cobra.Command, conn *connection, options runOptions, dir environment.Dir, namespace string,
) (*environmentRun, *cluster.Identity, error) {
	client, config, err := conn.newNamespacedClient(namespace)
	if err != nil {
		return nil, nil, err
	}
	target, err := cluster.Open(client, config, conn.contextName())
	if err != nil {
		return nil, nil, err
	}
	identity, err := target.Identify(command.Context())
	if err != nil {
		return nil, nil, err
	}
	record, err := dir.VerifyCluster(identity)
	return &environmentRun{command: command, options: options, dir: dir, cluster: target, config: config, identity: identity}, record, err
}

// location describes the namespace and the cluster for confirmation prompts.
func (r *environmentRun) location() string {
	return "in namespace " + r.settings.Namespace + " of the cluster " + r.identity.String()
}

// report prints the outcome of a step.
func (r *environmentRun) report(step, outcome string) {
	fmt.Fprintf(r.command.OutOrStdout(), "%s: %s\n", step, outcome)
}

// runPreflight runs the preflight checks with the permissions of the CPI, and prints the failed ones.
func (r *environmentRun) runPreflight(ctx context.Context) error {
	options := kube.Options{KubeconfigPath: r.dir.KubeconfigPath(), Namespace: r.settings.Namespace}
	client, err := kube.New(options, manifest.ManagedBy, retryTimeout)
	if err != nil {
		return err
	}
	if err := waitForPermissions(ctx, client); err != nil {
		return err
	}
	if r.relabeled {
		if err := waitForPodSecurity(ctx, client); err != nil {
			return err
		}
	}
	results := preflight.RunWithClient(ctx, cpi.DefaultConfig(), client, "")
	const checkCommand = "kubectl bosh check --namespace "
	if preflight.Passed(results) {
		r.report("check", "all required preflight checks passed (`"+checkCommand+r.settings.Namespace+"` shows them)")
		return nil
	}
	failed := slices.DeleteFunc(results, func(result preflight.Result) bool { return preflight.Passed([]preflight.Result{result}) })
	if err := preflight.Write(r.command.OutOrStdout(), failed, false); err != nil {
		return err
	}
	return errors.New("preflight checks failed in namespace " + r.settings.Namespace + "; see the remedies above and " +
		"docs/reference/preflight.md, or skip the checks with --no-check")
}

// waitForPermissions waits until the API server applies the new RBAC objects, which takes a moment. It returns nil if permissions are
// still missing after 10 seconds, because the preflight checks report them.
func waitForPermissions(ctx context.Context, client *kube.Client) error {
	reviewer, err := client.Reviewer()
	if err != nil {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, 10*time.Second, true, func(ctx context.Context) (bool, error) {
		for _, permission := range []kube.Permission{{Resource: "pods", Verb: "create"}, {Resource: "nodes", Verb: "list", ClusterScoped: true}} {
			if allowed, err := reviewer.IsAllowed(ctx, permission); err != nil || !allowed {
				return false, ctx.Err()
			}
		}
		return true, nil
	})
	if wait.Interrupted(err) {
		return ctx.Err()
	}
	return err
}

// confirm asks the operator for confirmation, and fails without it.
func (o runOptions) confirm(command *cobra.Command, question string) error {
	if o.yes {
		return nil
	}
	fmt.Fprint(command.OutOrStdout(), question+" [yN]: ")
	line, err := bufio.NewReader(command.InOrStdin()).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if input := strings.ToLower(strings.TrimSpace(line)); input == "y" || input == "yes" {
		return nil
	}
	return errors.New("not confirmed: the cluster was not changed; use --yes to skip the confirmation")
}

func printReport(to io.Writer, title string, lines []cluster.ReportLine) {
	fmt.Fprintln(to, title+":")
	table := newTable(to)
	for _, line := range lines {
		fmt.Fprintf(table, "  %s\t%s\n", line.Name, line.Value)
	}
	table.Flush()
	fmt.Fprintln(to)
}

func printLines(to io.Writer, title string, lines []string) {
	fmt.Fprintln(to, title+":")
	for _, line := range lines {
		fmt.Fprintln(to, "  "+line)
	}
	fmt.Fprintln(to)
}
