package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/cluster"
	"bosh-kubernetes-cpi/cmd/kubectl-bosh/environment"
)

// Defaults of the director's name and namespace.
const (
	defaultDirectorName = "kubernetes"
	defaultNamespace    = "bosh"
)

// tokenLifetime is the requested lifetime of the token for the CPI that create-env runs. The API server may issue a token with a
// shorter lifetime. Each run requests a new token.
const tokenLifetime = 24 * time.Hour

// upOptions are the flags of `kubectl bosh up`.
type upOptions struct {
	environment.Options
	runOptions
	dryRun           bool
	noCheck          bool
	printPermissions bool
}

// runOptions are the flags of `up` and `down`.
type runOptions struct {
	dir     string
	bosh    string
	yes     bool
	noProxy bool
}

func (o *runOptions) addFlags(flags *pflag.FlagSet, defaultDir string) {
	flags.StringVar(&o.dir, "dir", "", "Environment `directory` (default: "+defaultDir+")")
	flags.StringVar(&o.bosh, "bosh", "", "BOSH CLI `program` (default: bosh)")
	flags.BoolVar(&o.noProxy, "no-proxy", false, "Run the BOSH CLI without a proxy; requires a network route to the director")
	flags.BoolVarP(&o.yes, "yes", "y", false, "Do not ask for confirmation")
}

// boshProgram returns the path or name of the BOSH CLI.
func (o *runOptions) boshProgram() string { return cmp.Or(o.bosh, "bosh") }

func newUpCommand(conn *connection) *cobra.Command {
	var options upOptions
	command := &cobra.Command{
		Use:   "up",
		Short: "Create or update a BOSH director",
		Long: "Create or update a BOSH director in the cluster of your kubeconfig, in the namespace set by --namespace or by the kubeconfig's\n" +
			"context (default: bosh).\n\n" +
			"up inspects the cluster, decides how the director gets its address and credentials, and writes the files for `bosh create-env`\n" +
			"to an environment directory. It prints its findings and its decisions, and with --dry-run the equivalent manual commands. After\n" +
			"confirmation, it creates the namespace and the RBAC objects, runs preflight checks, runs `bosh create-env` through its own\n" +
			"proxy, and uploads a cloud config, a runtime config and the stemcell to the new director.\n\n" +
			"With --restricted, it also applies an admission policy with limits that admit only the images, StorageClasses and service\n" +
			"account of the director, and network policies. To admit more, edit their files, and run up again.\n\n" +
			"The directory also contains the state, passwords and keys of the director: keep it. If the directory exists, up uses the\n" +
			"decisions recorded there, which you may edit. It updates the director, or resumes after a failure.\n\n" +
			"Requirements: the BOSH CLI and Ruby; " + requiredFiles() + "and the permissions of a cluster administrator, or those that\n" +
			"--print-permissions prints.",
		Example: `  # Inspect the cluster and write the files, without changing the cluster
  ` + firstRunCommand() + ` --dry-run

  # Create a small director, for tests
  ` + firstRunCommand() + ` -o small.yml

  # Create or update the director with the files in the directory "kubernetes"
  kubectl bosh up --dir kubernetes

  # Print the RBAC objects that an administrator must apply before you can run up and down
  kubectl bosh up --print-permissions --namespace bosh`,
		Args: flagsOnly,
		RunE: func(command *cobra.Command, _ []string) error {
			return options.run(command, conn)
		},
	}
	options.addUpFlags(command.Flags())
	return command
}

// requiredFiles names the files that up requires, unless this program was published with them.
func requiredFiles() string {
	if publishedRelease != "" {
		return ""
	}
	return "a checkout of https://github.com/cloudfoundry/bosh-deployment, a release of the CPI\nand a light stemcell; "
}

// firstRunCommand returns the command that creates a director, with flags for the files that this program was not published with.
func firstRunCommand() string {
	if publishedRelease != "" {
		return "kubectl bosh up"
	}
	return "kubectl bosh up --bosh-deployment bosh-deployment --release bosh-kubernetes-cpi.tgz --stemcell stemcell.tgz"
}

func (o *upOptions) addUpFlags(flags *pflag.FlagSet) {
	o.PublishedRelease = environment.ParsePublishedFile(publishedRelease)
	o.PublishedNodeImage = publishedNodeImage
	o.PublishedStemcell = environment.ParsePublishedFile(publishedStemcell)
	flags.SortFlags = false
	flags.StringVar(&o.Director, "name", "", "Director `name` (default: "+defaultDirectorName+")")
	flags.StringVar(&o.BOSHDeployment, "bosh-deployment", "", "Checkout `directory` of bosh-deployment (default for a new director: "+
		environment.ParsePublishedFile(publishedDeployment).String()+")")
	flags.StringVar(&o.Manifest, "manifest", "",
		"Manifest `file` to use instead of bosh.yml; it must contain the paths that the ops files change")
	flags.StringVar(&o.Release, "release", "",
		"CPI release tarball (`path` or URL, or \"published\", the default for a new director: "+o.PublishedRelease.String()+")")
	flags.StringVar(&o.ReleaseSHA1, "release-sha1", "", "Release `checksum`, as SHA1 or sha256:SHA256; required if --release is a URL")
	flags.StringVar(&o.Stemcell, "stemcell", "",
		"Light stemcell (`path`, URL, or image in a registry; default for a new director: "+o.PublishedStemcell.String()+")")
	flags.StringVar(&o.StemcellSHA1, "stemcell-sha1", "",
		"Stemcell `checksum`, as SHA1 or sha256:SHA256; required if --stemcell is a URL")
	flags.StringArrayVarP(&o.OpsFiles, "ops-file", "o", nil, "Additional ops `file`, applied after the generated ones, or the name of one "+
		"that up contains, such as small.yml (repeatable)")
	flags.StringArrayVarP(&o.Vars, "var", "v", nil, "Manifest variable as `name=value`; the value is YAML (repeatable)")
	flags.StringVar(&o.Network, "network", "", "Address `type` of the director: static for a Pod address, service for a Service address "+
		"(default: static if a reserved range is known, otherwise service)")
	flags.StringVar(&o.Range, "range", "",
		"`CIDR` of the reserved range for --network static; the network plugin must assign addresses from it only on request")
	flags.StringVar(&o.Address, "address", "",
		"`IP` address of the director, in the reserved range or the Service range (default: a free address)")
	flags.StringVar(&o.Credentials, "credentials", "", "How the director authenticates (`type`): in-cluster uses the service account of "+
		"its Pod, kubeconfig uses a token that does not expire (default: in-cluster)")
	o.addFlags(flags, "the director's name")
	flags.BoolVar(&o.Restricted, "restricted", false,
		"Limit the CPI's permissions with an admission policy, and the traffic of VMs with network policies; requires an administrator")
	flags.BoolVar(&o.ReplaceServer, "replace-server", false,
		"Replace the recorded API server with the one in your kubeconfig; create-env then recreates the director's VM")
	flags.BoolVar(&o.AllowPrivileged, "allow-privileged-namespace", false,
		"Allow VM Pods in an existing namespace by setting its label "+cluster.PodSecurityLabel+"="+
			cluster.PodSecurityPrivileged+"; down restores the previous value")
	flags.BoolVar(&o.printPermissions, "print-permissions", false,
		"Print the RBAC objects that an administrator must apply to grant you the permissions for up and down, and exit")
	flags.BoolVar(&o.dryRun, "dry-run", false, "Inspect the cluster and write the files, but do not change the cluster")
	flags.BoolVar(&o.noCheck, "no-check", false, "Skip the preflight checks before create-env")
}

// flagsOnly is cobra.NoArgs without the argument in its error, because the argument may be the secret value of a variable.
func flagsOnly(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected arguments (%d); set each variable with its own --var name=value, and quote values with spaces", len(args))
	}
	return nil
}

// run creates or updates the director.
func (o *upOptions) run(command *cobra.Command, conn *connection) error {
	ctx := command.Context()
	if err := errors.Join(o.ResolvePublished(), o.Validate()); err != nil {
		return err
	}
	if o.printPermissions {
		return o.writeOperatorPermissions(command, conn)
	}
	dir := environment.Dir{Path: cmp.Or(o.dir, o.Director, defaultDirectorName)}
	stemcellImage := ""
	if isImage(o.Stemcell) {
		stemcellImage, o.Stemcell = o.Stemcell, ""
	}
	if err := o.CheckFiles(); err != nil {
		return err
	}
	lock, unlock, err := dir.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	namespace, err := o.resolveNamespace(dir, conn)
	if err != nil {
		return err
	}
	run, record, err := newEnvironmentRun(command, conn, o.runOptions, dir, namespace)
	if err != nil {
		return err
	}
	run.lock = lock
	if err := run.checkOtherDirectors(ctx); err != nil {
		return err
	}
	if err := o.addFiles(ctx, dir, stemcellImage); err != nil {
		return err
	}
	o.Cluster, o.KubectlFlags = record, conn.kubectlFlags()
	if o.LostVM, err = run.findLostVM(ctx); err != nil {
		return err
	}
	return o.planAndApply(ctx, run, conn)
}

// planAndApply writes the plan, and after confirmation creates or updates the director.
func (o *upOptions) planAndApply(ctx context.Context, run *environmentRun, conn *connection) error {
	command, dir := run.command, run.dir
	inspection, plan, err := o.writePlan(ctx, run)
	if err != nil {
		return err
	}
	manifest, err := o.checkManifest(ctx, dir, plan)
	if err != nil {
		return err
	}
	if err := dir.WriteLimits(ctx, plan, manifest); err != nil {
		return err
	}
	if o.dryRun {
		fmt.Fprintln(command.OutOrStdout(), "The cluster was not changed (--dry-run).")
		return nil
	}
	if inspection.Namespace.RejectsVMs() && !o.AllowPrivileged {
		return fmt.Errorf("namespace %s rejects VM Pods, which are privileged: its label is %s=%s; to change the label until "+
			"`kubectl bosh down` restores it, run: %s", plan.Namespace, cluster.PodSecurityLabel, inspection.Namespace.PodSecurity,
			environment.QuoteCommand(o.rerunCommand(command, conn, dir, "--allow-privileged-namespace")))
	}
	missing := dir.CheckFiles(plan.Settings, plan.Vars, "kubernetes_cpi_url", "stemcell_url")
	if err := errors.Join(o.checkRequirements(ctx), checkFreeSpace(dir), missing); err != nil {
		return err
	}
	if err := o.confirm(command, "Create or update the director "+plan.Director+" "+run.location()+"?"); err != nil {
		return err
	}
	if err := o.apply(ctx, run, inspection, plan, manifest); err != nil || !manifest.HasDirector() {
		return err
	}
	return run.configureDirector(ctx, plan)
}

// addFiles writes a light stemcell for the image to the directory, and the published bosh-deployment for a new director, if there is one
// and no flag selects another.
func (o *upOptions) addFiles(ctx context.Context, dir environment.Dir, stemcellImage string) (err error) {
	if stemcellImage != "" {
		if o.Stemcell, err = (stemcellOptions{}).write(ctx, stemcellImage, dir.Path); err != nil {
			return err
		}
	}
	_, exists, err := dir.ReadSettings()
	published := environment.ParsePublishedFile(publishedDeployment)
	if err != nil || exists || published.URL == "" || o.BOSHDeployment != "" || o.Manifest != "" {
		return err
	}
	o.UsePublished = true
	return dir.FetchDeployment(ctx, published)
}

// writePlan inspects the cluster, writes the files of the plan to the directory, and prints both.
func (o *upOptions) writePlan(ctx context.Context, run *environmentRun) (*cluster.Inspection, *environment.Plan, error) {
	out := run.command.OutOrStdout()
	inspection, err := run.cluster.Inspect(ctx)
	if err != nil {
		return nil, nil, err
	}
	printReport(out, "Cluster", inspection.Findings)
	plan, err := environment.NewPlan(ctx, run.dir, o.Options, inspection, run.cluster)
	if err != nil {
		return nil, nil, err
	}
	printReport(out, "Decisions", plan.Decisions)
	written, err := run.dir.Write(plan, run.config)
	if err != nil {
		return nil, nil, err
	}
	run.settings = plan.Settings
	if o.ReplaceServer {
		run.replaceServer = replaceAlways
	}
	printLines(out, "Files in "+run.dir.Path, groupByValue(written))
	if o.dryRun {
		printLines(out, "Equivalent manual commands", run.dir.ManualCommands(o.boshProgram(), plan))
	}
	return inspection, plan, nil
}

// checkManifest fails if an ops file does not fit the manifest, a variable has no value, the stemcell does not fit the releases, or the
// cluster lacks a default StorageClass for the disks. Without the BOSH CLI, which only --dry-run does not require, it returns an empty
// manifest.
func (o *upOptions) checkManifest(ctx context.Context, dir environment.Dir, plan *environment.Plan,
) (manifest environment.Manifest, err error) {
	if _, err := exec.LookPath(o.boshProgram()); err != nil {
		return manifest, nil //nolint:nilerr // see above
	}
	arguments := dir.InterpolateCommand(o.boshProgram(), plan.Settings)
	interpolated, err := exec.CommandContext(ctx, arguments[0], arguments[1:]...).Output()
	if ctx.Err() != nil {
		return manifest, ctx.Err()
	}
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return manifest, fmt.Errorf("bosh interpolate %s: %s; if an ops file is wrong, remove it from ops_files in %s/up.yml", plan.Manifest,
			strings.TrimSpace(string(failed.Stderr)), dir.Path)
	}
	if err != nil {
		return manifest, fmt.Errorf("bosh interpolate %s: %w", plan.Manifest, err)
	}
	if manifest, err = plan.ParseManifest(interpolated); err != nil {
		return manifest, err
	}
	hasDisk, err := dir.HasDisk()
	if err == nil && !hasDisk {
		err = manifest.CheckStorageClasses()
	}
	return manifest, errors.Join(err, manifest.CheckVariables(dir), manifest.CheckSeries(dir))
}

// resolveNamespace returns the namespace of the director. For a new directory, it also sets the default name of the director.
func (o *upOptions) resolveNamespace(dir environment.Dir, conn *connection) (namespace string, err error) {
	recorded, exists, err := dir.ReadSettings()
	if err != nil {
		return "", err
	}
	if o.Namespace = conn.explicitNamespace(); exists {
		return recorded.Namespace, nil
	}
	o.Director = cmp.Or(o.Director, defaultDirectorName)
	o.Namespace, err = newNamespace(conn)
	return o.Namespace, err
}

// newNamespace returns the namespace for a new director: the one set by flags, or the context's one unless it is default, or bosh.
func newNamespace(conn *connection) (string, error) {
	namespace, err := conn.namespace()
	if conn.explicitNamespace() == "" && namespace == metav1.NamespaceDefault {
		namespace = defaultNamespace
	}
	return namespace, err
}

// rerunCommand returns the command that runs up again on the directory, with an additional flag. It omits recorded options: values of
// variables may be secret.
func (o *upOptions) rerunCommand(command *cobra.Command, conn *connection, dir environment.Dir, extraFlag string) []string {
	arguments := append([]string{"kubectl", "bosh", "up", "--dir", dir.Path}, conn.kubectlFlags()...)
	for _, name := range []string{"bosh", "no-proxy", "no-check", "replace-server"} {
		if option := command.Flags().Lookup(name); option.Changed {
			arguments = append(arguments, "--"+name+"="+option.Value.String())
		}
	}
	return append(arguments, extraFlag)
}

// writeOperatorPermissions prints the objects that grant the current user the permissions for up and down. It ignores the directory,
// which usually does not exist yet.
func (o *upOptions) writeOperatorPermissions(command *cobra.Command, conn *connection) error {
	namespace, err := newNamespace(conn)
	if err != nil {
		return err
	}
	client, _, err := conn.newNamespacedClient(namespace)
	if err != nil {
		return err
	}
	user, err := client.CurrentUser(command.Context())
	if err != nil {
		return fmt.Errorf("cannot determine the user to print permissions for: %w", err)
	}
	_, err = fmt.Fprint(command.OutOrStdout(), linkDocs(environment.OperatorPermissions(user, namespace, o.Credentials)))
	return err
}

// apply creates or updates the objects that the director requires, and runs create-env.
func (o *upOptions) apply(ctx context.Context, run *environmentRun, inspection *cluster.Inspection, plan *environment.Plan,
	manifest environment.Manifest,
) error {
	if o.AllowPrivileged && inspection.Namespace.Exists && inspection.Namespace.PodSecurity != cluster.PodSecurityPrivileged {
		if err := run.allowPrivileged(ctx, inspection.Namespace.PodSecurity); err != nil {
			return err
		}
	}
	permissions, err := run.dir.PermissionsObjects()
	if err != nil {
		return err
	}
	if err := run.applyObjects(ctx, permissions, "an administrator can apply the output of `kubectl bosh up --print-permissions --namespace "+
		plan.Namespace+"`"); err != nil {
		return err
	}
	if plan.Restricted {
		if err := run.restrict(ctx); err != nil {
			return err
		}
	}
	if err := run.cluster.WaitForDefaultServiceAccount(ctx); err != nil {
		return err
	}
	if err := run.cluster.WaitForQuota(ctx, cluster.AttachmentQuota); err != nil {
		return err
	}
	if err := run.writeCredentials(ctx); err != nil {
		return err
	}
	if err := run.writeDirectorCredentials(ctx, inspection.APIURL); err != nil {
		return err
	}
	if plan.Restricted {
		if err := run.verifyPolicy(ctx); err != nil {
			return err
		}
	}
	if !o.noCheck {
		if err := run.runPreflight(ctx, plan, manifest); err != nil {
			return err
		}
	}
	return run.runBOSH(ctx, "create-env", plan.CreateEnvFlags()...)
}

// applyObjects applies the objects, and prints the outcomes. The remedy is that of missing permissions.
func (r *environmentRun) applyObjects(ctx context.Context, objects []*unstructured.Unstructured, remedy string) error {
	var outcomes []cluster.ReportLine
	defer func() {
		for _, line := range groupByValue(outcomes) {
			fmt.Fprintln(r.command.OutOrStdout(), line)
		}
	}()
	for _, object := range objects {
		name := cluster.KindAndName(object)
		outcome, err := r.cluster.Apply(ctx, object)
		if apierrors.IsForbidden(err) {
			return fmt.Errorf("apply %s: %w; %s", name, err, remedy)
		}
		if err != nil {
			return fmt.Errorf("apply %s: %w", name, err)
		}
		outcomes = append(outcomes, cluster.ReportLine{Name: name, Value: outcome})
	}
	return nil
}
