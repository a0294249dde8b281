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
	"bosh-kubernetes-cpi/cpi/preflight"
	"bosh-kubernetes-cpi/kube"
)

// session is one run of `up` or `down` on the cluster of the folder.
type session struct {
	command  *cobra.Command
	options  runOptions
	folder   environment.Folder
	settings environment.Settings
	cluster  *cluster.Cluster
	config   *rest.Config // the operator's
	identity cluster.Identity

	relabeled bool // the namespace allows VM Pods only since this run

	// replaceServer lets the kubeconfig of this machine's CPI name another API server than before.
	replaceServer replacement
}

// newSession returns one for the namespace of the cluster that the connection leads to, and the folder's record of the cluster. It
// fails if that is another cluster than the folder's.
func newSession(command *cobra.Command, connection *connection, options runOptions, folder environment.Folder, namespace string,
) (*session, *cluster.Identity, error) {
	client, config, err := connection.openIn(namespace)
	if err != nil {
		return nil, nil, err
	}
	there, err := cluster.Open(client, config, connection.context())
	if err != nil {
		return nil, nil, err
	}
	identity, err := there.Identify(command.Context())
	if err != nil {
		return nil, nil, err
	}
	record, err := folder.Recognize(identity)
	return &session{command: command, options: options, folder: folder, cluster: there, config: config, identity: identity}, record, err
}

// in names the namespace and its cluster for a question.
func (s *session) in() string {
	return "in namespace " + s.settings.Namespace + " of the cluster " + s.identity.String()
}

// say tells of a step.
func (s *session) say(what, said string) {
	fmt.Fprintf(s.command.OutOrStdout(), "%s: %s\n", what, said)
}

// check looks whether the CPI can work, with its own rights, and tells what it cannot work without.
func (s *session) check(ctx context.Context) error {
	client, err := kube.New(kube.Options{KubeconfigPath: s.folder.Kubeconfig(), Namespace: s.settings.Namespace}, patience)
	if err != nil {
		return err
	}
	if err := awaitRights(ctx, client); err != nil {
		return err
	}
	if s.relabeled {
		if err := awaitPodSecurity(ctx, client); err != nil {
			return err
		}
	}
	results := preflight.RunWithClient(ctx, cpi.DefaultConfig(), client, "")
	const all = "kubectl bosh check --namespace "
	if preflight.Passed(results) {
		s.say("check", "the CPI can work in the namespace (`"+all+s.settings.Namespace+"` tells more)")
		return nil
	}
	missing := slices.DeleteFunc(results, func(result preflight.Result) bool { return preflight.Passed([]preflight.Result{result}) })
	if err := preflight.Write(s.command.OutOrStdout(), missing, false); err != nil {
		return err
	}
	return errors.New("the CPI cannot work in namespace " + s.settings.Namespace + ": see above what to do, and docs/preflight.md; " +
		"--no-check goes on all the same")
}

// awaitRights waits until the API server has heard of the rights that were just given: that takes it a moment. What is
// missing after that, the checks tell.
func awaitRights(ctx context.Context, client *kube.Client) error {
	reviewer, err := client.Reviewer()
	if err != nil {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, 10*time.Second, true, func(ctx context.Context) (bool, error) {
		for _, right := range []kube.Right{{Resource: "pods", Verb: "create"}, {Resource: "nodes", Verb: "list", ClusterScoped: true}} {
			if may, err := reviewer.IsAllowed(ctx, right); err != nil || !may {
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

// confirm asks the operator.
func (o runOptions) confirm(command *cobra.Command, question string) error {
	if o.yes {
		return nil
	}
	fmt.Fprint(command.OutOrStdout(), question+" [yN]: ")
	line, err := bufio.NewReader(command.InOrStdin()).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if answer := strings.ToLower(strings.TrimSpace(line)); answer == "y" || answer == "yes" {
		return nil
	}
	return errors.New("not confirmed: nothing was changed in the cluster (--yes does not ask)")
}

func printFacts(to io.Writer, head string, facts []cluster.Fact) {
	fmt.Fprintln(to, head+":")
	table := newTable(to)
	for _, fact := range facts {
		fmt.Fprintf(table, "  %s\t%s\n", fact.What, fact.Said)
	}
	table.Flush()
	fmt.Fprintln(to)
}

func printLines(to io.Writer, head string, lines []string) {
	fmt.Fprintln(to, head+":")
	for _, line := range lines {
		fmt.Fprintln(to, "  "+line)
	}
	fmt.Fprintln(to)
}
