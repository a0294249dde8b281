package main

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"bosh-kubernetes-cpi/cpi"
	"bosh-kubernetes-cpi/cpi/preflight"
)

// checkOptions are the flags of `kubectl bosh check`.
type checkOptions struct {
	image, nodeImage, configPath, output string
	deep, failures                       bool
	nodeSelector                         map[string]string
}

func newCheckCommand(conn *connection) *cobra.Command {
	var options checkOptions
	command := &cobra.Command{
		Use:   "check",
		Short: "Run the CPI's preflight checks in a namespace",
		Long: "Check whether the cluster, the namespace and the user's permissions meet the requirements of the CPI. Print the result of\n" +
			"each check, with a remedy if it failed. These are the checks of `cpi -check`, but with the permissions of the kubeconfig's user.\n\n" +
			"Without --deep, nothing is changed: requests that create objects are dry runs. With --deep, Pods run on nodes for up to a\n" +
			"minute.\n\n" +
			"The exit status is 1 if a required check fails.",
		Example: `  # Check with your own permissions
  kubectl bosh check -n bosh

  # Check with the permissions of the CPI's service account
  kubectl bosh check -n bosh --as system:serviceaccount:bosh:bosh-cpi`,
		Args: noArguments("set the namespace with --namespace"),
		RunE: func(command *cobra.Command, _ []string) error { return options.run(command, conn) },
	}
	flags := command.Flags()
	flags.BoolVar(&options.deep, "deep", false, "Also run the deep checks, which create test Pods and delete them within about a minute")
	flags.BoolVar(&options.failures, "failures", false, "Print only the checks that failed")
	flags.StringVar(&options.image, "image", "",
		"Stemcell `image` for the Pods that the checks create (default: the image of an existing VM)")
	flags.StringVar(&options.nodeImage, "node-image", "", "The `image` of bosh-node, as REPOSITORY@DIGEST (default: the one in the "+
		"configuration, or the image that was published with this program)")
	flags.StringToStringVar(&options.nodeSelector, "node-selector", nil, "The `labels` of the nodes for --deep, for example dedicated=bosh "+
		"(default: nodes that the admission limits admit, if possible without taints)")
	flags.Lookup("node-selector").DefValue = "" // do not show an empty list
	addConfigFlag(flags, &options.configPath)
	addOutputFlag(command, &options.output)
	return command
}

func (o checkOptions) run(command *cobra.Command, conn *connection) error {
	ctx, out := command.Context(), command.OutOrStdout()
	if err := validateOutput(o.output); err != nil {
		return err
	}
	config, err := loadConfig(o.configPath)
	if err != nil {
		return err
	}
	if config.NodeImage, err = chooseNodeImage(o.nodeImage, o.configPath, config); err != nil {
		return err
	}
	client, _, err := conn.newClient()
	if err != nil {
		return err
	}
	results := preflight.Run(ctx, config, client, o.image)
	if o.deep {
		results = append(results, preflight.RunDeep(ctx, config, client, o.image, o.nodeSelector)...)
	}
	shown := results
	if o.failures {
		shown = preflight.Failed(results)
	}
	asJSON := o.output == jsonOutput
	if len(shown) > 0 || asJSON {
		if err := writeResults(out, shown, asJSON); err != nil {
			return err
		}
	}
	if !asJSON {
		fmt.Fprintln(out, preflight.Summary(results))
	}
	if !preflight.Passed(results) {
		return exitStatus(1)
	}
	return nil
}

// chooseNodeImage returns the image of bosh-node that is checked, or "". The published image is not that of a configuration, which may have
// mirrors or a registry.
func chooseNodeImage(flag, configPath string, config cpi.Config) (string, error) {
	if flag == "" && configPath != "" {
		return config.NodeImage, nil
	}
	config.NodeImage = cmp.Or(flag, publishedNodeImage)
	if err := config.NodeImageStore(nil).Validate(); err != nil {
		return "", fmt.Errorf("--node-image: %w", err)
	}
	return config.NodeImage, nil
}

const jsonOutput = "json"

func addOutputFlag(command *cobra.Command, output *string) {
	command.Flags().StringVarP(output, "output", "o", "", "Output `format`: json (default: a table)")
	_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{jsonOutput}, cobra.ShellCompDirectiveNoFileComp))
}

func validateOutput(output string) error {
	if output != "" && output != jsonOutput {
		return fmt.Errorf("--output %q is not valid; use %s", output, jsonOutput)
	}
	return nil
}

// loadConfig loads the configuration from path, or returns the defaults if path is empty. The caller ignores its cluster settings.
func loadConfig(path string) (cpi.Config, error) {
	if path == "" {
		return cpi.DefaultConfig(), nil
	}
	config, err := cpi.LoadConfig(path)
	if err != nil {
		err = fmt.Errorf("--config-path: %w", err)
	}
	return config, err
}
