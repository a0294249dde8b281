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

// runPreflight runs the preflight checks with the CPI's permissions and this image, and prints the failed ones. For a new director with
// in-cluster credentials, it also checks whether a Pod reaches the API server. If image is "", it uses another image, and omits this check.
func (r *environmentRun) runPreflight(ctx context.Context, image string) error {
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
	results := preflight.Run(ctx, preflightConfig(), client, image)
	if preflight.Passed(results) {
		r.report("check", "all required preflight checks passed (`kubectl bosh check --namespace "+r.settings.Namespace+"` shows them)")
		return r.checkAPIAccess(ctx, client, image)
	}
	if err := r.writeFailed(results); err != nil {
		return err
	}
	return errors.New("preflight checks failed in namespace " + r.settings.Namespace + "; see the remedies above and " +
		"docs/reference/preflight.md, or skip the checks with --no-check")
}

// preflightConfig returns the CPI's configuration for preflight checks, with the image of bosh-node that was published with this program.
func preflightConfig() cpi.Config {
	config := cpi.DefaultConfig()
	config.NodeImage = publishedNodeImage
	return config
}

// checkAPIAccess fails if a VM cannot reach the API server: a director with in-cluster credentials would start, but its CPI would fail. The
// other deep checks are not printed, unless no Pod runs, because the director's manifest may have settings that make them succeed.
func (r *environmentRun) checkAPIAccess(ctx context.Context, client *kube.Client, image string) error {
	if directorUUID, err := r.dir.DirectorUUID(); err != nil || directorUUID != "" || image == "" ||
		r.settings.Credentials != environment.CredentialsInCluster {
		return err
	}
	r.report("check", "Pods of the stemcell run for up to a minute, to check whether VMs reach the API server")
	results := preflight.RunDeep(ctx, preflightConfig(), client, image)
	index := slices.IndexFunc(results, func(result preflight.Result) bool { return result.Check == preflight.CheckInClusterAPI })
	switch access := results[index]; access.Verdict {
	case preflight.OK:
		return nil
	case preflight.Fails:
		if err := r.writeFailed([]preflight.Result{access}); err != nil {
			return err
		}
		return errors.New("VMs in namespace " + r.settings.Namespace + " cannot reach the API server, which a director with in-cluster " +
			"credentials requires; see the remedy above, or skip the checks with --no-check")
	}
	r.report("check", "whether VMs reach the API server is not known; continuing")
	return r.writeFailed(results)
}

// writeFailed prints the failed results, if there are any.
func (r *environmentRun) writeFailed(results []preflight.Result) error {
	failed := preflight.Failed(results)
	if len(failed) == 0 {
		return nil
	}
	return writeResults(r.command.OutOrStdout(), failed, false)
}

// waitForPermissions waits until the API server applies the new RBAC objects, which takes a moment. It returns nil if permissions are
// still missing after 10 seconds, because the preflight checks report them.
func waitForPermissions(ctx context.Context, client *kube.Client) error {
	reviewer := client.Reviewer()
	return waitForEffect(ctx, func(ctx context.Context) bool {
		for _, permission := range []kube.Permission{{Resource: "pods", Verb: "create"}, {Resource: "nodes", Verb: "list", ClusterScoped: true}} {
			if allowed, err := reviewer.IsAllowed(ctx, permission); err != nil || !allowed {
				return false
			}
		}
		return true
	})
}

// waitForEffect waits until a change takes effect in the API server, but for at most 10 seconds. Only the end of the context is an error.
func waitForEffect(ctx context.Context, hasEffect func(context.Context) bool) error {
	_ = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, 10*time.Second, true, func(ctx context.Context) (bool, error) {
		return hasEffect(ctx), nil
	})
	return ctx.Err()
}

// confirm asks the operator for confirmation, and fails without it.
func (o runOptions) confirm(command *cobra.Command, question string) error {
	if o.yes {
		return nil
	}
	fmt.Fprint(command.OutOrStdout(), question+" [yN]: ")
	confirmed := make(chan error, 1)
	go func() { confirmed <- readConfirmation(command.InOrStdin()) }() // a read does not end with the context
	select {
	case <-command.Context().Done():
		return errors.New("interrupted: the cluster was not changed")
	case err := <-confirmed:
		return err
	}
}

func readConfirmation(from io.Reader) error {
	line, err := bufio.NewReader(from).ReadString('\n')
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
		fmt.Fprintf(table, "  %s\t%s\n", line.Name, linkDocs(line.Value))
	}
	table.Flush()
	fmt.Fprintln(to)
}

// groupByValue returns a line "name, name: value" for each value.
func groupByValue(lines []cluster.ReportLine) []string {
	var values, grouped []string
	names := map[string][]string{}
	for _, line := range lines {
		if names[line.Value] == nil {
			values = append(values, line.Value)
		}
		names[line.Value] = append(names[line.Value], line.Name)
	}
	for _, value := range values {
		grouped = append(grouped, strings.Join(names[value], ", ")+": "+value)
	}
	return grouped
}

func printLines(to io.Writer, title string, lines []string) {
	fmt.Fprintln(to, title+":")
	for _, line := range lines {
		fmt.Fprintln(to, "  "+line)
	}
	fmt.Fprintln(to)
}
