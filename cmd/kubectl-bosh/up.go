package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/cluster"
	"bosh-kubernetes-cpi/cmd/kubectl-bosh/environment"
)

// Defaults of the director's name and namespace.
const (
	defaultDirectorName = "kubernetes"
	defaultNamespace    = "bosh"
)

// tokenLifetime is the requested lifetime of the token for create-env's CPI; the API server may issue one with a shorter lifetime.
// Each run requests a new token.
const tokenLifetime = 24 * time.Hour

// upOptions are the flags of `kubectl bosh up`.
type upOptions struct {
	environment.Options
	runOptions
	dryRun      bool
	noCheck     bool
	printRights bool
}

// runOptions are the flags of `up` and `down`.
type runOptions struct {
	dir     string
	bosh    string
	yes     bool
	noProxy bool
}

func (o *runOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.dir, "dir", "", "Environment `folder` (default: the director's name)")
	flags.StringVar(&o.bosh, "bosh", "bosh", "BOSH CLI `program`")
	flags.BoolVar(&o.noProxy, "no-proxy", false, "Run the BOSH CLI without a proxy; requires a network route to the director")
	flags.BoolVarP(&o.yes, "yes", "y", false, "Do not ask for confirmation")
}

func newUpCommand(connection *connection) *cobra.Command {
	var options upOptions
	command := &cobra.Command{
		Use:   "up",
		Short: "Create or update a BOSH director",
		Long: `Create or update a BOSH director in the cluster of your kubeconfig, in the namespace of --namespace or of the kubeconfig's context
(default: bosh).

up inspects the cluster, decides how the director gets its address and credentials, and writes the files for "bosh create-env" to
a folder. It prints its findings, its decisions, and the commands that do the same manually. After confirmation it creates the
namespace and the RBAC objects, runs preflight checks, and runs "bosh create-env" through a proxy of its own.

The folder also contains the state, passwords and keys of the director: keep it. If the folder exists, up uses the decisions in
it, which you may edit, and updates the director or continues where it has failed.

Requirements: the BOSH CLI; a checkout of https://github.com/cloudfoundry/bosh-deployment; a release of the CPI; a light stemcell;
and cluster administrator rights, or the rights that --print-rights prints.`,
		Example: `  # Inspect the cluster and write the files, without changing the cluster
  kubectl bosh up --bosh-deployment bosh-deployment --release bosh-kubernetes-cpi.tgz --stemcell stemcell.tgz --dry-run

  # Create or update the director with the files in the folder "kubernetes"
  kubectl bosh up --dir kubernetes

  # Print the rights that an administrator can grant you
  kubectl bosh up --print-rights --namespace bosh`,
		Args: flagsOnly,
		RunE: func(command *cobra.Command, _ []string) error {
			return options.run(command, connection)
		},
	}
	flags := command.Flags()
	flags.SortFlags = false
	flags.StringVar(&options.Director, "name", "", "Director's `name` (default: "+defaultDirectorName+")")
	flags.StringVar(&options.BOSHDeployment, "bosh-deployment", "", "Checkout `folder` of bosh-deployment, with the manifest bosh.yml")
	flags.StringVar(&options.Manifest, "manifest", "",
		"Manifest `file` to use instead; it must keep bosh.yml's names for what ops files patch")
	flags.StringVar(&options.Release, "release", "", "CPI release, a `path` or URL")
	flags.StringVar(&options.ReleaseSHA1, "release-sha1", "", "SHA-1 `checksum` of the release, or sha256:SHA-256; required for a URL")
	flags.StringVar(&options.Stemcell, "stemcell", "", "Light stemcell, a `path` or URL")
	flags.StringVar(&options.StemcellSHA1, "stemcell-sha1", "", "SHA-1 `checksum` of the stemcell, or sha256:SHA-256; required for a URL")
	flags.StringArrayVarP(&options.OpsFiles, "ops-file", "o", nil, "Ops `file` to apply after those that up chooses (repeatable)")
	flags.StringArrayVarP(&options.Vars, "var", "v", nil, "Variable for the manifest, as `NAME=VALUE`; VALUE is YAML (repeatable)")
	flags.StringVar(&options.Network, "network", "", "Kind of the director's address, static (of its Pod) or service (of a Service); "+
		"by default static if there is a reserved range")
	flags.StringVar(&options.Range, "range", "", "Reserved range for --network static, a `CIDR` that is assigned on request only")
	flags.StringVar(&options.Address, "address", "", "`IP` address of the director, in the reserved or Service range (default: a free one)")
	flags.StringVar(&options.Credentials, "credentials", "", "Credentials of the director, in-cluster (the service account of its Pod) "+
		"or kubeconfig (a token that does not expire); by default in-cluster")
	options.addFlags(flags)
	flags.BoolVar(&options.ReplaceServer, "replace-server", false,
		"Replace the recorded API server with that of your kubeconfig; create-env recreates the director's VM")
	flags.BoolVar(&options.AllowPrivileged, "allow-privileged-namespace", false,
		"Admit VM Pods to an existing namespace: set its label "+cluster.PodSecurityLabel+"="+cluster.PodSecurityPrivileged+
			"; down restores the former value")
	flags.BoolVar(&options.printRights, "print-rights", false,
		"Print the objects that an administrator applies to grant you the rights for up and down, and exit")
	flags.BoolVar(&options.dryRun, "dry-run", false, "Inspect the cluster and write the files, but do not change the cluster")
	flags.BoolVar(&options.noCheck, "no-check", false, "Skip the preflight checks before create-env")
	return command
}

// flagsOnly is cobra.NoArgs without the argument in its error, because the argument may be the secret value of a variable.
func flagsOnly(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%d unexpected arguments; give each variable with its own --var, as NAME=VALUE, in quotes if it has spaces",
			len(args))
	}
	return nil
}

// run creates or updates the director.
func (o *upOptions) run(command *cobra.Command, connection *connection) error {
	ctx, out := command.Context(), command.OutOrStdout()
	if o.printRights {
		return o.writeOperatorRights(command, connection)
	}
	folder := environment.Folder{Path: cmp.Or(o.dir, o.Director, defaultDirectorName)}
	namespace, err := o.resolveNamespace(folder, connection)
	if err != nil {
		return err
	}
	session, record, err := newSession(command, connection, o.runOptions, folder, namespace)
	if err != nil {
		return err
	}
	o.Cluster, o.KubectlFlags = record, connection.kubectlFlags()
	inspection, err := session.cluster.Inspect(ctx)
	if err != nil {
		return err
	}
	printFacts(out, "Cluster", inspection.Facts)
	plan, err := environment.NewPlan(ctx, folder, o.Options, inspection, session.cluster)
	if err != nil {
		return err
	}
	printFacts(out, "Decisions", plan.Decisions)
	written, err := folder.Write(plan, session.config)
	if err != nil {
		return err
	}
	session.settings = plan.Settings
	if o.ReplaceServer {
		session.replaceServer = replaceAlways
	}
	printFacts(out, "Files in "+folder.Path, written)
	printLines(out, "Manual alternative", folder.ManualCommands(o.bosh, plan))
	if o.dryRun {
		fmt.Fprintln(out, "The cluster was not changed (--dry-run).")
		return nil
	}
	if inspection.Namespace.RefusesVMs() && !o.AllowPrivileged {
		return fmt.Errorf("namespace %s refuses VM Pods, which are privileged: its label is %s=%s; to change the label until "+
			"`kubectl bosh down` restores it, run: %s", plan.Namespace, cluster.PodSecurityLabel, inspection.Namespace.PodSecurity,
			environment.QuoteCommand(o.rerunCommand(command, connection, folder, "--allow-privileged-namespace")))
	}
	if err := o.confirm(command, "Create or update the director "+plan.Director+" "+session.location()+"?"); err != nil {
		return err
	}
	if err := o.apply(ctx, session, inspection); err != nil {
		return err
	}
	printLines(out, "Next steps", folder.NextSteps(plan))
	return nil
}

// resolveNamespace returns the namespace of the director. For a new folder it also sets the default of the director's name.
func (o *upOptions) resolveNamespace(folder environment.Folder, connection *connection) (namespace string, err error) {
	recorded, exists, err := folder.Settings()
	if err != nil {
		return "", err
	}
	if o.Namespace = connection.explicitNamespace(); exists {
		return recorded.Namespace, nil
	}
	o.Director = cmp.Or(o.Director, defaultDirectorName)
	o.Namespace, err = newNamespace(connection)
	return o.Namespace, err
}

// newNamespace returns the namespace for a new director: that of the flags, or that of the context unless it is default, or bosh.
func newNamespace(connection *connection) (string, error) {
	namespace, err := connection.namespace()
	if connection.explicitNamespace() == "" && namespace == metav1.NamespaceDefault {
		namespace = defaultNamespace
	}
	return namespace, err
}

// rerunCommand returns the command that runs up again on the folder, with an additional flag. It omits what the folder has recorded,
// such as values of variables, which may be secret.
func (o *upOptions) rerunCommand(command *cobra.Command, connection *connection, folder environment.Folder, extraFlag string) []string {
	arguments := append([]string{"kubectl", "bosh", "up", "--dir", folder.Path}, connection.kubectlFlags()...)
	for _, name := range []string{"bosh", "no-proxy", "no-check", "replace-server"} {
		if option := command.Flags().Lookup(name); option.Changed {
			arguments = append(arguments, "--"+name+"="+option.Value.String())
		}
	}
	return append(arguments, extraFlag)
}

// writeOperatorRights prints the objects that grant the current user the rights for up and down. It ignores the folder, which usually
// does not exist yet.
func (o *upOptions) writeOperatorRights(command *cobra.Command, connection *connection) error {
	if err := o.Validate(); err != nil {
		return err
	}
	namespace, err := newNamespace(connection)
	if err != nil {
		return err
	}
	client, config, err := connection.newNamespacedClient(namespace)
	if err != nil {
		return err
	}
	target, err := cluster.Open(client, config, connection.contextName())
	if err != nil {
		return err
	}
	user, err := target.CurrentUser(command.Context())
	if err != nil {
		return fmt.Errorf("cannot determine the user to print rights for: %w", err)
	}
	_, err = fmt.Fprint(command.OutOrStdout(), environment.OperatorRights(user, namespace, o.Credentials))
	return err
}

// apply creates or updates the objects that the director requires, and runs create-env.
func (o *upOptions) apply(ctx context.Context, s *session, inspection *cluster.Inspection) error {
	if err := s.checkBOSHCLI(); err != nil {
		return err
	}
	if o.AllowPrivileged && inspection.Namespace.Exists && inspection.Namespace.PodSecurity != cluster.PodSecurityPrivileged {
		if err := s.allowPrivileged(ctx, inspection.Namespace.PodSecurity); err != nil {
			return err
		}
	}
	objects, err := s.folder.RightsObjects()
	if err != nil {
		return err
	}
	for _, object := range objects {
		outcome, err := s.cluster.Apply(ctx, object)
		if cluster.IsForbidden(err) {
			return fmt.Errorf("apply %s: %w; an administrator can apply the output of `kubectl bosh up --print-rights --namespace %s`",
				cluster.Title(object), err, s.settings.Namespace)
		}
		if err != nil {
			return fmt.Errorf("apply %s: %w", cluster.Title(object), err)
		}
		s.report(cluster.Title(object), outcome)
	}
	if err := s.cluster.WaitForDefaultServiceAccount(ctx); err != nil {
		return err
	}
	if err := s.writeCredentials(ctx, inspection.APIURL); err != nil {
		return err
	}
	if !o.noCheck {
		if err := s.runPreflight(ctx); err != nil {
			return err
		}
	}
	return s.runBOSH(ctx, "create-env")
}

// checkBOSHCLI fails early if the BOSH CLI is missing.
func (s *session) checkBOSHCLI() error {
	if _, err := exec.LookPath(s.options.bosh); err != nil {
		return fmt.Errorf("cannot find the BOSH CLI: %w; install it (https://bosh.io/docs/cli-v2-install/), or give its path with --bosh", err)
	}
	return nil
}

// runBOSH prints and runs the command of the BOSH CLI.
func (s *session) runBOSH(ctx context.Context, verb string) error {
	arguments := s.folder.BOSHCommand(s.options.bosh, verb, s.settings)
	fmt.Fprintf(s.command.OutOrStdout(), "\n$ %s\n", environment.QuoteCommand(arguments))
	// Without --tty the CLI prints no progress if its output is not a terminal, for minutes.
	err := s.execBOSH(ctx, append(arguments, "--tty", "--non-interactive"))
	if _, failed := errors.AsType[exitStatus](err); failed {
		fmt.Fprintf(s.command.ErrOrStderr(),
			"error: bosh %s failed, see its output above; run the same command again to continue\n", verb)
	}
	return err
}

func (s *session) execBOSH(ctx context.Context, arguments []string) error {
	if s.options.noProxy {
		return runCommand(context.WithoutCancel(ctx), arguments) // the CLI receives signals itself
	}
	server, _ := newProxyServer(s.command, s.cluster.Client, s.config, proxyOptions{direct: true, wait: defaultVMWait})
	if err := server.Check(ctx); err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	return runWithProxy(ctx, server, listener, arguments)
}
