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

// What a director is called, and where it is, unless the operator says otherwise.
const (
	usualName      = "kubernetes"
	usualNamespace = "bosh"
)

// tokenLife is how long the token lives by which create-env's CPI works, if the API server gives such. The next run has a
// new one.
const tokenLife = 24 * time.Hour

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
	flags.StringVar(&o.dir, "dir", "", "Folder for the environment's files; the director's name by default")
	flags.StringVar(&o.bosh, "bosh", "bosh", "The BOSH CLI")
	flags.BoolVar(&o.noProxy, "no-proxy", false, "Run the BOSH CLI without a proxy of its own, where there is a route to the director")
	flags.BoolVarP(&o.yes, "yes", "y", false, "Do not ask")
}

func newUpCommand(connection *connection) *cobra.Command {
	var options upOptions
	command := &cobra.Command{
		Use:   "up",
		Short: "Bring up a director, or bring it up to date: find out, decide, write files, create-env",
		Long: `From a kubeconfig to a director. It looks what the cluster is like, decides what follows from it, and writes all that
create-env takes into a folder: it says what it has found, decided and written, and by which commands the same is done by hand.
Then it asks, makes the namespace and the rights, checks whether the CPI can work there, and runs the BOSH CLI's create-env
through a proxy of its own.

Run again, it goes by what is in the folder, which you may change, and runs create-env again.`,
		Example: `  kubectl bosh up --bosh-deployment bosh-deployment --release bosh-kubernetes-cpi.tgz --stemcell stemcell.tgz --dry-run
  kubectl bosh up --dir kubernetes`,
		Args: flagsOnly,
		RunE: func(command *cobra.Command, _ []string) error {
			return options.run(command, connection)
		},
	}
	flags := command.Flags()
	flags.SortFlags = false
	flags.StringVar(&options.Director, "name", "", "The director's name; "+usualName+" by default")
	flags.StringVar(&options.Deployment, "bosh-deployment", "", "Folder with bosh-deployment, whose bosh.yml is the manifest")
	flags.StringVar(&options.Manifest, "manifest", "", "Another manifest, in which what ops files change is called as in bosh.yml")
	flags.StringVar(&options.Release, "release", "", "The CPI's release, as `make release` makes it: a path or a URL")
	flags.StringVar(&options.ReleaseSHA1, "release-sha1", "", "Its SHA-1, or sha256:… with its SHA-256; needed for https://")
	flags.StringVar(&options.Stemcell, "stemcell", "", "A light stemcell: a path or a URL")
	flags.StringVar(&options.StemcellSHA1, "stemcell-sha1", "", "Likewise the stemcell's")
	flags.StringArrayVarP(&options.OpsFiles, "ops-file", "o", nil, "One more ops file, after those that are chosen here")
	flags.StringArrayVarP(&options.Vars, "var", "v", nil, "One more variable, NAME=VALUE")
	flags.StringVar(&options.Network, "network", "", "static or service: whether the director's address is its Pod's or a Service's")
	flags.StringVar(&options.Range, "range", "", "Range whose addresses the network plugin gives on request, and to nobody else")
	flags.StringVar(&options.Address, "address", "", "The director's address, of that range or of the cluster's Service range")
	flags.StringVar(&options.Credentials, "credentials", "", "in-cluster (the default) or kubeconfig: by what the director works there")
	options.addFlags(flags)
	flags.BoolVar(&options.ReplaceServer, "replace-server", false,
		"Have create-env's CPI use the API server's name of your kubeconfig from now on; the director's VM is recreated")
	flags.BoolVar(&options.AllowPrivileged, "allow-privileged-namespace", false,
		"Set the namespace's label "+cluster.PodSecurity+" to "+cluster.Privileged+" if it exists with another value, until down")
	flags.BoolVar(&options.printRights, "print-rights", false,
		"Print what an administrator applies so that you can run this without being one, and do nothing else")
	flags.BoolVar(&options.dryRun, "dry-run", false, "Write the files, and change nothing in the cluster")
	flags.BoolVar(&options.noCheck, "no-check", false, "Run create-env although something that the CPI needs is not there")
	return command
}

// flagsOnly is cobra.NoArgs without the argument in its error: it may be the secret value of a variable.
func flagsOnly(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%d arguments do not belong to a flag: each variable needs a --var of its own, as NAME=VALUE without spaces, "+
			"or in quotes", len(args))
	}
	return nil
}

// run brings the director up.
func (o *upOptions) run(command *cobra.Command, connection *connection) error {
	ctx, out := command.Context(), command.OutOrStdout()
	if o.printRights {
		return o.rights(command, connection)
	}
	folder := environment.Folder{Path: cmp.Or(o.dir, o.Director, usualName)}
	namespace, err := o.settle(folder, connection)
	if err != nil {
		return err
	}
	session, record, err := newSession(command, connection, o.runOptions, folder, namespace)
	if err != nil {
		return err
	}
	o.Cluster, o.Reach = record, connection.reach()
	found, err := session.cluster.Look(ctx)
	if err != nil {
		return err
	}
	printFacts(out, "Found", found.Facts)
	plan, err := environment.Decide(ctx, folder, o.Options, found, session.cluster)
	if err != nil {
		return err
	}
	printFacts(out, "Decided", plan.Decisions)
	written, err := folder.Write(plan, session.config)
	if err != nil {
		return err
	}
	session.settings = plan.Settings
	if o.ReplaceServer {
		session.replaceServer = always
	}
	printFacts(out, "Files in "+folder.Path, written)
	printLines(out, "By hand", folder.ByHand(o.bosh, plan))
	if o.dryRun {
		fmt.Fprintln(out, "Nothing was changed in the cluster (--dry-run).")
		return nil
	}
	if found.Namespace.RefusesVMs() && !o.AllowPrivileged {
		return fmt.Errorf("namespace %s refuses VM Pods, which are privileged: it has the label %s=%s; to change that until "+
			"`kubectl bosh down` restores it, run: %s", plan.Namespace, cluster.PodSecurity, found.Namespace.PodSecurity,
			environment.Quote(o.again(command, connection, folder, "--allow-privileged-namespace")))
	}
	if err := o.confirm(command, "Create or update the director "+plan.Director+" "+session.in()+"?"); err != nil {
		return err
	}
	if err := o.bring(ctx, session, found); err != nil {
		return err
	}
	printLines(out, "Go on", folder.Afterwards(plan))
	return nil
}

// settle returns the namespace, and takes names that were not given from the folder, or as they usually are.
func (o *upOptions) settle(folder environment.Folder, connection *connection) (namespace string, err error) {
	before, again, err := folder.Settings()
	if err != nil {
		return "", err
	}
	if o.Namespace = connection.given(); again {
		return before.Namespace, nil
	}
	o.Director = cmp.Or(o.Director, usualName)
	o.Namespace, err = newNamespace(connection)
	return o.Namespace, err
}

// newNamespace is where a director is put that has no folder yet: the namespace of the flags or of the context, unless that is the default.
func newNamespace(connection *connection) (string, error) {
	namespace, err := connection.namespace()
	if connection.given() == "" && namespace == metav1.NamespaceDefault {
		namespace = usualNamespace
	}
	return namespace, err
}

// again is the command that runs up once more on the folder, with this flag. What the folder has recorded is not in it, and so
// no variable's value, which may be secret.
func (o *upOptions) again(command *cobra.Command, connection *connection, folder environment.Folder, flag string) []string {
	again := append([]string{"kubectl", "bosh", "up", "--dir", folder.Path}, connection.reach()...)
	for _, name := range []string{"bosh", "no-proxy", "no-check", "replace-server"} {
		if given := command.Flags().Lookup(name); given.Changed {
			again = append(again, "--"+name+"="+given.Value.String())
		}
	}
	return append(again, flag)
}

// rights prints what an administrator applies for whoever runs up. No folder counts: there is none yet where this is needed first.
func (o *upOptions) rights(command *cobra.Command, connection *connection) error {
	if err := o.Validate(); err != nil {
		return err
	}
	namespace, err := newNamespace(connection)
	if err != nil {
		return err
	}
	client, config, err := connection.openIn(namespace)
	if err != nil {
		return err
	}
	there, err := cluster.Open(client, config, connection.context())
	if err != nil {
		return err
	}
	user, err := there.User(command.Context())
	if err != nil {
		return fmt.Errorf("cannot find out for which user to print rights: %w", err)
	}
	_, err = fmt.Fprint(command.OutOrStdout(), environment.RightsOfOperator(user, namespace, o.Credentials))
	return err
}

// bring makes what the director needs, and the director.
func (o *upOptions) bring(ctx context.Context, s *session, found *cluster.Found) error {
	if err := s.findBosh(); err != nil {
		return err
	}
	if o.AllowPrivileged && found.Namespace.Exists && found.Namespace.PodSecurity != cluster.Privileged {
		if err := s.allowPrivileged(ctx, found.Namespace.PodSecurity); err != nil {
			return err
		}
	}
	objects, err := s.folder.Objects()
	if err != nil {
		return err
	}
	for _, object := range objects {
		outcome, err := s.cluster.Bring(ctx, object)
		if cluster.IsForbidden(err) {
			return fmt.Errorf("%s: %w; an administrator can apply what `kubectl bosh up --print-rights --namespace %s` prints",
				cluster.Title(object), err, s.settings.Namespace)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", cluster.Title(object), err)
		}
		s.say(cluster.Title(object), outcome)
	}
	if err := s.cluster.AwaitAccount(ctx); err != nil {
		return err
	}
	if err := s.writeCredentials(ctx, found.API); err != nil {
		return err
	}
	if !o.noCheck {
		if err := s.check(ctx); err != nil {
			return err
		}
	}
	return s.run(ctx, "create-env")
}

// findBosh tells early of a CLI that is not there.
func (s *session) findBosh() error {
	if _, err := exec.LookPath(s.options.bosh); err != nil {
		return fmt.Errorf("the BOSH CLI is needed (https://bosh.io/docs/cli-v2-install/; --bosh names it): %w", err)
	}
	return nil
}

// run runs the BOSH CLI to its end.
func (s *session) run(ctx context.Context, verb string) error {
	arguments := s.folder.Bosh(s.options.bosh, verb, s.settings)
	fmt.Fprintf(s.command.OutOrStdout(), "\n$ %s\n", environment.Quote(arguments))
	// Where its output is no terminal, the CLI would say nothing of what takes minutes.
	err := s.runBosh(ctx, append(arguments, "--tty", "--non-interactive"))
	if _, failed := errors.AsType[exitStatus](err); failed {
		fmt.Fprintf(s.command.ErrOrStderr(),
			"error: bosh %s failed: its reason is above; what is done stays, and the same command goes on from there\n", verb)
	}
	return err
}

func (s *session) runBosh(ctx context.Context, arguments []string) error {
	if s.options.noProxy {
		return runWith(context.WithoutCancel(ctx), arguments) // it hears of signals, and ends by itself
	}
	server, _ := newServer(s.command, s.cluster.Client, s.config, proxyOptions{direct: true, wait: machineWait})
	if err := server.Check(ctx); err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	return runThrough(ctx, server, listener, arguments)
}
