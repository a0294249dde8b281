package main

import (
	"cmp"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"bosh-kubernetes-cpi/kube"
)

// patience is how long a request is repeated while the API server cannot be reached.
const patience = 5 * time.Second

// connection is which API server to talk to, as whom, and about which namespace: kubectl's flags, and its kubeconfig.
type connection struct {
	rules     *clientcmd.ClientConfigLoadingRules
	overrides clientcmd.ConfigOverrides
}

func (c *connection) addFlags(flags *pflag.FlagSet) {
	c.rules = clientcmd.NewDefaultClientConfigLoadingRules()
	flags.StringVar(&c.rules.ExplicitPath, clientcmd.RecommendedConfigPathFlag, "", "Path to the kubeconfig file to use")
	named := clientcmd.RecommendedConfigOverrideFlags("")
	clientcmd.BindOverrideFlags(&c.overrides, flags, named)
}

// open returns a client of the namespace, and the settings that it was made of. No request is sent.
func (c *connection) open() (*kube.Client, *rest.Config, error) {
	namespace, err := c.namespace()
	if err != nil {
		return nil, nil, err
	}
	return c.openIn(namespace)
}

// openIn is open for another namespace than that of the flags and the kubeconfig.
func (c *connection) openIn(namespace string) (*kube.Client, *rest.Config, error) {
	config, err := c.source().ClientConfig()
	if err != nil {
		return nil, nil, err
	}
	config.UserAgent = "kubectl-bosh"
	client, err := kube.NewFor(config, namespace, patience)
	return client, config, err
}

// namespace is the one of the flags, or of the kubeconfig's context; kubectl's default without either.
func (c *connection) namespace() (string, error) {
	namespace, _, err := c.source().Namespace()
	return namespace, err
}

// context is the name of the kubeconfig's context; "" without one.
func (c *connection) context() string {
	config, err := c.source().RawConfig()
	if err != nil {
		return c.overrides.CurrentContext
	}
	return cmp.Or(c.overrides.CurrentContext, config.CurrentContext)
}

// reach are the flags that lead to the cluster, as they were given.
func (c *connection) reach() []string {
	var flags []string
	for _, each := range []struct{ flag, value string }{
		{"--kubeconfig", c.rules.ExplicitPath}, {"--context", c.overrides.CurrentContext},
		{"--cluster", c.overrides.Context.Cluster}, {"--user", c.overrides.Context.AuthInfo}, {"--server", c.overrides.ClusterInfo.Server},
	} {
		if each.value != "" {
			flags = append(flags, each.flag, each.value)
		}
	}
	return flags
}

// given is the namespace of the flags; "" without one.
func (c *connection) given() string { return c.overrides.Context.Namespace }

func (c *connection) source() clientcmd.ClientConfig {
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(c.rules, &c.overrides)
}

// version is what scripts/build-kubectl-bosh publishes the program as.
var version = "of a checkout"

func newRoot() *cobra.Command {
	to := &connection{}
	root := &cobra.Command{
		Use:   "kubectl-bosh",
		Short: "What BOSH has in a Kubernetes cluster, and a way in to it",
		Long: `What BOSH has in a namespace of a Kubernetes cluster, and a way in to it for who has nothing but a kubeconfig.

INSTANCE is GROUP/INDEX or GROUP/ID as BOSH names instances, the ID alone, or the VM's CID, which is the Pod's name.`,
		Version:       version,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl bosh"},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	to.addFlags(root.PersistentFlags())
	for _, command := range []func(*connection) *cobra.Command{
		newUpCommand, newDownCommand, newCheckCommand, newCollectCommand,
		newProxyCommand, newPsCommand, newDescribeCommand, newLogsCommand, newExecCommand, newSSHCommand,
	} {
		root.AddCommand(command(to))
	}
	return root
}
