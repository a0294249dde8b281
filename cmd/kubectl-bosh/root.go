package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"bosh-kubernetes-cpi/cpi/preflight"
	"bosh-kubernetes-cpi/kube"
)

// retryTimeout bounds how long requests are retried while the API server is unreachable.
const retryTimeout = 2 * time.Second

// connection selects the cluster, the user and the namespace, from kubectl's flags and the kubeconfig.
type connection struct {
	rules     *clientcmd.ClientConfigLoadingRules
	overrides clientcmd.ConfigOverrides
}

func (c *connection) addFlags(flags *pflag.FlagSet) {
	c.rules = clientcmd.NewDefaultClientConfigLoadingRules()
	flags.StringVar(&c.rules.ExplicitPath, clientcmd.RecommendedConfigPathFlag, "", "Path to the kubeconfig file to use")
	flagNames := clientcmd.RecommendedConfigOverrideFlags("")
	clientcmd.BindOverrideFlags(&c.overrides, flags, flagNames)
	flags.VisitAll(func(flag *pflag.Flag) { flag.Hidden = !slices.Contains(commonFlags, flag.Name) })
}

// commonFlags are the flags of kubectl that the help of each command shows.
var commonFlags = []string{"kubeconfig", "context", "namespace"}

func newOptionsCommand(*connection) *cobra.Command {
	return &cobra.Command{
		Use:   "options",
		Short: "List the flags of all commands, which are those of kubectl",
		Long:  "List the flags that select the cluster, the namespace and the user. All commands accept them, as kubectl does.",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			command.InheritedFlags().VisitAll(func(flag *pflag.Flag) { flag.Hidden = false })
			_, err := fmt.Fprint(command.OutOrStdout(), command.InheritedFlags().FlagUsages())
			return err
		},
	}
}

// newClient returns a client for the selected namespace and its connection settings, without sending a request.
func (c *connection) newClient() (*kube.Client, *rest.Config, error) {
	namespace, err := c.namespace()
	if err != nil {
		return nil, nil, err
	}
	return c.newNamespacedClient(namespace)
}

// newNamespacedClient is like newClient, but for the given namespace, or with "" for all namespaces.
func (c *connection) newNamespacedClient(namespace string) (*kube.Client, *rest.Config, error) {
	config, err := c.clientConfig().ClientConfig()
	if err != nil {
		return nil, nil, c.explainConfigError(err)
	}
	config.UserAgent = "kubectl-bosh"
	client, err := kube.NewForConfig(config, namespace, retryTimeout)
	if err != nil {
		return nil, nil, cmp.Or(c.checkContext(), fmt.Errorf("kubeconfig %s: %w", c.files(), err))
	}
	return client, config, nil
}

// namespace returns the namespace set by flags or by the kubeconfig's context, or else kubectl's default.
func (c *connection) namespace() (string, error) {
	namespace, _, err := c.clientConfig().Namespace()
	if err != nil {
		return "", c.explainConfigError(err)
	}
	if invalid := validation.IsDNS1123Label(namespace); len(invalid) > 0 {
		return "", fmt.Errorf("namespace %q is not valid: %s; set --namespace", namespace, strings.Join(invalid, "; "))
	}
	return namespace, nil
}

// explainConfigError returns an error about the kubeconfig without its values: that of the first invalid file, or of the context. It names
// the files if none of them is a kubeconfig.
func (c *connection) explainConfigError(err error) error {
	if !clientcmd.IsEmptyConfig(err) {
		for _, path := range c.rules.GetLoadingPrecedence() {
			if _, fileErr := kube.LoadKubeconfig(path); fileErr != nil && !errors.Is(fileErr, fs.ErrNotExist) {
				return fileErr
			}
		}
		if clientcmd.IsContextNotFound(err) {
			return err
		}
		return cmp.Or(c.checkContext(), kube.WithoutValues(err))
	}
	return fmt.Errorf("no kubeconfig found at %s; set --kubeconfig, or KUBECONFIG", strings.Join(c.rules.GetLoadingPrecedence(), " or "))
}

// checkContext checks the context, with the cluster and the user that flags select. It returns nil if the kubeconfig cannot be read.
func (c *connection) checkContext() error {
	config, err := c.clientConfig().RawConfig()
	if err != nil {
		return nil //nolint:nilerr // the caller reports it
	}
	name := cmp.Or(c.overrides.CurrentContext, config.CurrentContext)
	if context := config.Contexts[name]; context != nil {
		context.Cluster = cmp.Or(c.overrides.Context.Cluster, context.Cluster)
		context.AuthInfo = cmp.Or(c.overrides.Context.AuthInfo, context.AuthInfo)
	}
	if err := kube.CheckContext(&config, name); err != nil {
		return fmt.Errorf("kubeconfig %s: %w", c.files(), err)
	}
	return nil
}

// files names the files of the kubeconfig.
func (c *connection) files() string { return strings.Join(c.rules.GetLoadingPrecedence(), " and ") }

// explainUnreachable names the context and the files that select an unreachable API server.
func (c *connection) explainUnreachable(err error) error {
	if !errors.Is(err, kube.ErrUnreachable) && !errors.Is(err, kube.ErrNotServed) {
		return err
	}
	return fmt.Errorf("cannot reach the API server of context %q: %w; check the server in %s, and the network",
		c.contextName(), err, c.files())
}

// contextName returns the name of the kubeconfig's context, or "" if there is none.
func (c *connection) contextName() string {
	config, err := c.clientConfig().RawConfig()
	if err != nil {
		return c.overrides.CurrentContext
	}
	return cmp.Or(c.overrides.CurrentContext, config.CurrentContext)
}

// kubectlFlags returns the operator's flags that select the cluster and the user.
func (c *connection) kubectlFlags() []string {
	var flags []string
	for _, option := range []struct{ flag, value string }{
		{"--kubeconfig", c.rules.ExplicitPath}, {"--context", c.overrides.CurrentContext},
		{"--cluster", c.overrides.Context.Cluster}, {"--user", c.overrides.Context.AuthInfo}, {"--server", c.overrides.ClusterInfo.Server},
		{"--as", c.overrides.AuthInfo.Impersonate}, {"--certificate-authority", c.overrides.ClusterInfo.CertificateAuthority},
		{"--tls-server-name", c.overrides.ClusterInfo.TLSServerName}, {"--client-certificate", c.overrides.AuthInfo.ClientCertificate},
		{"--client-key", c.overrides.AuthInfo.ClientKey}, {"--proxy-url", c.overrides.ClusterInfo.ProxyURL},
		{"--as-uid", c.overrides.AuthInfo.ImpersonateUID},
	} {
		if option.value != "" {
			flags = append(flags, option.flag, option.value)
		}
	}
	for _, group := range c.overrides.AuthInfo.ImpersonateGroups {
		flags = append(flags, "--as-group", group)
	}
	if c.overrides.ClusterInfo.InsecureSkipTLSVerify {
		flags = append(flags, "--insecure-skip-tls-verify")
	}
	return flags
}

// explicitNamespace returns the namespace set by flags, or "" if there is none.
func (c *connection) explicitNamespace() string { return c.overrides.Context.Namespace }

func (c *connection) clientConfig() clientcmd.ClientConfig {
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(c.rules, &c.overrides)
}

// scripts/build-kubectl-bosh sets these variables. Those of the published release, stemcell and bosh-deployment contain a URL and a
// checksum, separated by a space, and that of the published image of bosh-node its reference.
var (
	version             = "(development build)"
	publishedRelease    string
	publishedStemcell   string
	publishedDeployment string
	publishedNodeImage  string
)

var fileOfRepository = regexp.MustCompile(`\b(docs|manifests)/[a-z/-]+\.(md|yaml)|manifests/director-kubeconfig\.yml`)

// linkDocs replaces the paths of the documentation's pages, and of manifests in errors, by their URLs, if the plugin is published.
func linkDocs(text string) string {
	home, _, isPublished := strings.Cut(publishedRelease, "/releases/download/")
	if !isPublished {
		return text
	}
	return fileOfRepository.ReplaceAllStringFunc(text, func(path string) string {
		if strings.HasPrefix(path, "docs/") {
			return home + "/blob/" + version + "/" + path
		}
		return home + "/raw/" + version + "/" + path
	})
}

// writeResults prints the results of preflight checks.
func writeResults(out io.Writer, results []preflight.Result, asJSON bool) error {
	results = slices.Clone(results)
	for i := range results {
		results[i].Detail, results[i].Remedy = linkDocs(results[i].Detail), linkDocs(results[i].Remedy)
	}
	return preflight.Write(out, results, asJSON)
}

func newRoot(conn *connection) *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-bosh",
		Short: "Manage BOSH directors on Kubernetes, and inspect and access BOSH VMs",
		Long: "kubectl bosh creates and deletes BOSH directors on Kubernetes, checks whether a namespace meets the requirements of the CPI,\n" +
			"and inspects and accesses the VMs of BOSH deployments. It requires a kubeconfig, but no network route to Pods.\n\n" +
			"Commands operate on one namespace: --namespace, or by default the namespace of the kubeconfig's context. up uses\n" +
			"bosh instead of default; down, env and stemcell use the namespace that up recorded in the environment directory.\n" +
			"`kubectl bosh options` lists kubectl's other flags, which all commands accept.\n\n" +
			"INSTANCE is GROUP/INDEX, GROUP/ID (as printed by `bosh instances`), ID, or the VM CID, which is the name of the VM Pod.",
		Version:       version,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl bosh"},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	conn.addFlags(root.PersistentFlags())
	for _, newCommand := range []func(*connection) *cobra.Command{
		newUpCommand, newEnvCommand, newStemcellCommand, newDownCommand, newCheckCommand, newCollectCommand, newProxyCommand,
		newPsCommand, newDescribeCommand, newLogsCommand, newExecCommand, newSSHCommand, newOptionsCommand,
	} {
		root.AddCommand(newCommand(conn))
	}
	root.AddCommand(&cobra.Command{
		Use: "version", Short: "Print the version of the plugin", Args: cobra.NoArgs,
		Run: func(command *cobra.Command, _ []string) {
			fmt.Fprintln(command.OutOrStdout(), "kubectl bosh version "+version)
		},
	})
	return root
}
