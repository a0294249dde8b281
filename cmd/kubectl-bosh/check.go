package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"bosh-kubernetes-cpi/cpi"
	"bosh-kubernetes-cpi/cpi/preflight"
)

func newCheckCommand(connection *connection) *cobra.Command {
	var image, config, output string
	var deep bool
	command := &cobra.Command{
		Use:   "check",
		Short: "Run preflight checks for the CPI in a namespace",
		Long: "Run preflight checks: whether the cluster, the namespace and the user's rights meet the requirements of the CPI. For each\n" +
			"check, print the result and the remedy. The checks are those of `cpi -check`, with the rights of the kubeconfig's user.\n\n" +
			"Nothing is changed: requests to create objects are dry runs. With --deep, Pods run on nodes for up to a minute.\n\n" +
			"The exit status is 1 if a required check fails.",
		Example: `  # Check with your own rights
  kubectl bosh check -n bosh

  # Check with the rights of the CPI's service account
  kubectl bosh check -n bosh --as system:serviceaccount:bosh:bosh-cpi`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := validateOutput(output); err != nil {
				return err
			}
			settings, err := loadConfig(config)
			if err != nil {
				return err
			}
			client, _, err := connection.newClient()
			if err != nil {
				return err
			}
			results := preflight.RunWithClient(command.Context(), settings, client, image)
			if deep {
				results = append(results, preflight.RunDeepWithClient(command.Context(), settings, client, image)...)
			}
			if err := preflight.Write(command.OutOrStdout(), results, output == jsonOutput); err != nil {
				return err
			}
			if !preflight.Passed(results) {
				return exitStatus(1)
			}
			return nil
		},
	}
	flags := command.Flags()
	flags.BoolVar(&deep, "deep", false, "Also run Pods on nodes, for up to a minute, and delete them")
	flags.StringVar(&image, "image", "", "Stemcell `image` for the Pods of the checks (default: the image of an existing VM)")
	addConfigFlag(flags, &config)
	addOutputFlag(command, &output)
	return command
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

// loadConfig loads the configuration of the file, or returns the CPI's defaults without one. Its cluster is not used.
func loadConfig(path string) (cpi.Config, error) {
	if path == "" {
		return cpi.DefaultConfig(), nil
	}
	return cpi.LoadConfig(path)
}
