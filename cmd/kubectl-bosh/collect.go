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
		Use:   "collect",
		Short: "List or delete resources orphaned by interrupted calls",
		Long: "List the resources in the namespace that were orphaned by interrupted CPI calls of a director, with the reason and the age\n" +
			"of each. With --confirm, delete or repair them. Disks are never deleted.\n\n" +
			"This does the same as `cpi -collect`, with the permissions of the kubeconfig's user.",
		Example: `  # List orphaned resources
  kubectl bosh collect -n bosh

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
				if collector.Director, err = findOnlyDirector(command, client); err != nil {
					return err
				}
			}
			results, err := collector.Collect(command.Context(), client)
			return errors.Join(err, printResults(command, collector, results, err == nil, output))
		},
	}
	flags := command.Flags()
	flags.StringVar(&collector.Director, "director", "",
		"`UUID` of the director, as printed by `bosh env` (default: the only one with VMs in the namespace)")
	flags.BoolVar(&collector.Confirm, "confirm", false, "Delete the listed resources, and repair the listed disks")
	flags.DurationVar(&collector.MinAge, "min-age", 0, "Minimum age before a resource counts as orphaned, for example 30m "+
		"(default: the longest configured timeout)")
	addConfigFlag(flags, &configPath)
	addOutputFlag(command, &output)
	return command
}

// findOnlyDirector returns the UUID of the only director with VMs in the namespace. If there are others, or none, it returns an error that
// lists them.
func findOnlyDirector(command *cobra.Command, client *kube.Client) (uuid string, err error) {
	found, err := instances.List(command.Context(), client, instances.Filter{})
	if err != nil {
		return "", err
	}
	directors := map[string]string{}
	for _, instance := range found {
		uuid = instance.DirectorUUID
		directors[uuid] = strings.TrimSpace(uuid + " " + instance.Director)
	}
	switch len(directors) {
	case 0:
		return "", fmt.Errorf("no director has a VM in namespace %s; set --director to the UUID printed by `bosh env`", client.Namespace)
	case 1:
		return uuid, nil
	}
	return "", fmt.Errorf("several directors have VMs in namespace %s; set --director to the UUID of one:\n  %s",
		client.Namespace, strings.Join(slices.Sorted(maps.Values(directors)), "\n  "))
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
