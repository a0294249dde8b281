package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/cluster"
	"bosh-kubernetes-cpi/cmd/kubectl-bosh/environment"
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
	lock     *os.File // of the directory; nil without one

	relabeled bool // this run changed the namespace's Pod Security label

	// replaceServer selects when to replace the API server in the kubeconfig of the CPI that create-env runs.
	replaceServer serverReplacement
}

// newEnvironmentRun returns a run for a namespace of the cluster that conn selects, and the cluster's identity to record in the
// directory. It fails if the directory belongs to another cluster.
func newEnvironmentRun(command *cobra.Command, conn *connection, options runOptions, dir environment.Dir, namespace string,
) (*environmentRun, *cluster.Identity, error) {
	unix.Umask(0o077) // the BOSH CLI writes passwords and keys, perhaps to a directory that others can read
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

// readSettings returns the settings of the directory. It fails if there are none, or if a flag selects another namespace.
func (c *connection) readSettings(dir environment.Dir) (environment.Settings, error) {
	settings, exists, err := dir.ReadSettings()
	explicit := c.explicitNamespace()
	switch {
	case err != nil:
		return settings, err
	case !exists:
		return settings, fmt.Errorf("directory %s has no up.yml: `kubectl bosh up` did not create a director there; "+
			"select another directory with --dir", dir.Path)
	case explicit != "" && explicit != settings.Namespace:
		return settings, fmt.Errorf("directory %s belongs to a director in namespace %s, not %s; "+
			"omit --namespace, or select another directory with --dir", dir.Path, settings.Namespace, explicit)
	}
	return settings, nil
}

// location describes the namespace and the cluster for confirmation prompts.
func (r *environmentRun) location() string {
	return "in namespace " + r.settings.Namespace + " of the cluster " + r.identity.String()
}

// report prints the outcome of a step.
func (r *environmentRun) report(step, outcome string) {
	fmt.Fprintf(r.command.OutOrStdout(), "%s: %s\n", step, outcome)
}

// checkOtherDirectors fails if the namespace has a director's VM, and create-env did not create a director from the directory yet: two
// directors would share one Service and the permissions.
func (r *environmentRun) checkOtherDirectors(ctx context.Context) error {
	uuid, err := r.dir.DirectorUUID()
	if err != nil || uuid != "" {
		return err
	}
	namespace := r.cluster.Client.Namespace
	vms, err := r.cluster.Client.Pods.List(ctx, kube.Selection{Labels: manifest.ManagedSelector + "," + cluster.LabelDirectorName})
	if err != nil {
		return nil //nolint:nilerr // the inspection reports what it cannot list
	}
	for _, vm := range vms.Items {
		if !manifest.BelongsTo(vm, preflight.ProbeDirector) {
			return fmt.Errorf("namespace %s has the VM %s of director %s; create another director in a namespace of its own (--namespace), or "+
				"continue with the directory of this one (--dir)", namespace, vm.Name, vm.Labels[cluster.LabelDirectorName])
		}
	}
	return nil
}

// findLostVM returns the CID of the director's VM if its Pod is gone, terminates or has terminated, for example after a drain of its node.
// Otherwise, or without permission to get the Pod, it returns "".
func (r *environmentRun) findLostVM(ctx context.Context) (string, error) {
	vmCID, err := r.dir.VMCID()
	if err != nil || vmCID == "" {
		return "", err
	}
	pod, err := r.cluster.Client.Pods.Get(ctx, vmCID)
	switch {
	case errors.Is(err, kube.ErrNotFound):
		return vmCID, nil
	case errors.Is(err, kube.ErrDenied):
		return "", nil // the inspection reports missing permissions
	case err != nil:
		return "", err
	case pod.DeletionTimestamp != nil || kube.IsFinished(pod):
		return vmCID, nil
	}
	return "", nil
}

// checkInterrupted fails after an interruption before a command of the BOSH CLI, which itself receives only later signals.
func checkInterrupted(ctx context.Context, verb string) error {
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted before bosh %s; to continue, run the same command again", verb)
	}
	return nil
}

// runBOSH runs the command of the BOSH CLI with additional flags. `up --dry-run` prints it.
func (r *environmentRun) runBOSH(ctx context.Context, verb string, flags ...string) error {
	if err := checkInterrupted(ctx, verb); err != nil {
		return err
	}
	arguments := append(r.dir.BOSHCommand(r.options.boshProgram(), verb, r.settings), flags...)
	fmt.Fprintln(r.command.OutOrStdout())
	// Without --tty, the CLI prints no progress for minutes if its output is not a terminal.
	err := r.execBOSH(ctx, append(arguments, "--tty", "--non-interactive"))
	if _, failed := errors.AsType[exitStatus](err); failed {
		result := "error: bosh " + verb + " failed; see its output above"
		if ctx.Err() != nil {
			result = "interrupted"
		}
		fmt.Fprintf(r.command.ErrOrStderr(), "\n%s. Directory %s keeps the state; to continue, run the same command again\n", result, r.dir.Path)
	}
	return err
}

// execBOSH runs a command of the BOSH CLI, through a proxy unless there is a route.
func (r *environmentRun) execBOSH(ctx context.Context, arguments []string, variables ...string) error {
	return r.withProxy(ctx, func(ctx context.Context, proxy ...string) error {
		return runWithLock(ctx, r.lock, arguments, append(proxy, variables...)...)
	})
}

// withProxy calls do with the environment variables of a proxy, or with none if there is a route.
func (r *environmentRun) withProxy(ctx context.Context, do func(ctx context.Context, proxy ...string) error) error {
	if r.options.noProxy {
		return do(context.WithoutCancel(ctx)) // the CLI receives signals itself
	}
	vars, err := r.dir.ReadVars()
	if err != nil {
		return err
	}
	options := proxyOptions{direct: true, wait: defaultVMWait}
	server, listener, err := listenProxy(ctx, r.command.ErrOrStderr(), r.cluster.Client, r.config, options)
	if err != nil {
		return err
	}
	return serveWhile(ctx, server, listener, func(ctx context.Context, proxy ...string) error {
		return do(ctx, append(proxy, environment.Assignments(environment.NoProxy(vars.GetString("internal_ip")))...)...)
	})
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
