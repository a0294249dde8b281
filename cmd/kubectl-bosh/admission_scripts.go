package main

import (
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"bosh-kubernetes-cpi/cpi/manifest"
)

func newAdmissionScriptsCommand(*connection) *cobra.Command {
	return &cobra.Command{
		Use:   "admission-scripts",
		Short: "Print the ConfigMap of programs that the admission policy allows",
		Long: "Print the ConfigMap with the programs that the attachment and helper Pods of this release run. The admission policy allows no\n" +
			"other programs. This command sends no requests.\n\n" +
			"Apply it before you deploy a new release of the CPI. While Pods of the previous release run, keep its programs in the ConfigMap\n" +
			"under other keys, for example attach.previous for attach.",
		Example: `  # Allow the programs of this release
  kubectl bosh admission-scripts | kubectl apply -n bosh -f -`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			content, err := yaml.Marshal(manifest.AdmissionScripts())
			if err != nil {
				return err
			}
			_, err = command.OutOrStdout().Write(content)
			return err
		},
	}
}
