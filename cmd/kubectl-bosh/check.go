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
		Short: "Look whether the CPI can work in the namespace, and what to do where not",
		Long: "Looks whether the CPI can work in the namespace, as `cpi -check` does where a director runs, with your rights. Nothing is\n" +
			"changed; with --deep Pods run on the nodes for a while. The exit status is 0 when nothing that is required fails.",
		Example: `  kubectl bosh check -n bosh
  kubectl bosh check -n bosh --as system:serviceaccount:bosh:bosh-cpi`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := textOrJSON(output); err != nil {
				return err
			}
			settings, err := configOr(config)
			if err != nil {
				return err
			}
			client, _, err := connection.open()
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
	flags.BoolVar(&deep, "deep", false, "Run Pods on the nodes too, and remove them; it takes up to a minute")
	flags.StringVar(&image, "image", "", "Image that Pods are tried with, a stemcell's")
	addConfigFlag(flags, &config)
	addOutputFlag(command, &output)
	return command
}

const jsonOutput = "json"

func addOutputFlag(command *cobra.Command, output *string) {
	command.Flags().StringVarP(output, "output", "o", "", "Output format: json")
	_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{jsonOutput}, cobra.ShellCompDirectiveNoFileComp))
}

func textOrJSON(output string) error {
	if output != "" && output != jsonOutput {
		return fmt.Errorf("--output %q is not %s", output, jsonOutput)
	}
	return nil
}

// configOr is the configuration of the file, but for its cluster; the CPI's own without a file.
func configOr(path string) (cpi.Config, error) {
	if path == "" {
		return cpi.DefaultConfig(), nil
	}
	return cpi.LoadConfig(path)
}
