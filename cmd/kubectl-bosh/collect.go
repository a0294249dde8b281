package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/instances"
	"bosh-kubernetes-cpi/cpi/collect"
	"bosh-kubernetes-cpi/kube"
)

func addConfigFlag(flags *pflag.FlagSet, path *string) {
	flags.StringVar(path, "config-path", "",
		"CPI configuration `file` of the director (cpi.json); cluster settings in it are ignored (default: built-in defaults)")
}

func newCollectCommand(conn *connection) *cobra.Command {
	var collector collect.Collector
	var configPath, output string
	command := &cobra.Command{
		Use:   "collect --director UUID",
		Short: "List or delete resources orphaned by interrupted calls",
		Long: "List the resources in the namespace that were orphaned by interrupted CPI calls of a director, with the reason and the age\n" +
			"of each. With --confirm, delete or repair them. Disks are never deleted.\n\n" +
			"This does the same as `cpi -collect`, with the permissions of the kubeconfig's user.",
		Example: `  # List orphaned resources
  kubectl bosh collect -n bosh --director UUID

  # Delete or repair them
  kubectl bosh collect -n bosh --director UUID --confirm`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := validateOutput(output); err != nil {
				return err
			}
			var err error
			if collector.Config, err = loadConfig(configPath); err != nil {
				return err
			}
			collector.ConfigAssumed = configPath == ""
			client, _, err := conn.newClient()
			if err != nil {
				return err
			}
			if collector.Director == "" {
				return directorRequiredError(command, client)
			}
			results, err := collector.Collect(command.Context(), client)
			return errors.Join(err, printResults(command, collector, results, err == nil, output))
		},
	}
	flags := command.Flags()
	flags.StringVar(&collector.Director, "director", "", "`UUID` of the director, as printed by `bosh env` (required)")
	flags.BoolVar(&collector.Confirm, "confirm", false, "Delete the listed resources, and repair the listed disks")
	flags.DurationVar(&collector.MinAge, "min-age", 0, "Minimum age before a resource counts as orphaned, for example 30m "+
		"(default: the longest configured timeout)")
	addConfigFlag(flags, &configPath)
	addOutputFlag(command, &output)
	return command
}

// directorRequiredError returns an error for the missing flag --director. It lists the directors with VMs in the namespace.
func directorRequiredError(command *cobra.Command, client *kube.Client) error {
	found, err := instances.List(command.Context(), client, instances.Filter{})
	if err != nil {
		return err
	}
	directors := map[string]bool{}
	for _, instance := range found {
		directors[strings.TrimSpace(instance.DirectorUUID+" "+instance.Director)] = true
	}
	hint := "no director has a VM in namespace " + client.Namespace
	if len(directors) > 0 {
		hint = "directors with VMs in namespace " + client.Namespace + ": " + strings.Join(slices.Sorted(maps.Keys(directors)), ", ")
	}
	return fmt.Errorf("--director is required; set it to the UUID printed by `bosh env`; %s", hint)
}

func printResults(command *cobra.Command, collector collect.Collector, results []collect.Result, complete bool, output string) error {
	out := command.OutOrStdout()
	if output == jsonOutput {
		encoder := json.NewEncoder(out)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		return encoder.Encode(append([]collect.Result{}, results...))
	}
	return collector.Write(out, results, complete, "--confirm")
}
