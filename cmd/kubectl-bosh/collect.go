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
	"bosh-kubernetes-cpi/cpi"
	"bosh-kubernetes-cpi/kube"
)

func addConfigFlag(flags *pflag.FlagSet, config *string) {
	flags.StringVar(config, "config-path", "", "Path of a cpi.json with the director's settings; which cluster it names does not matter")
}

func newCollectCommand(connection *connection) *cobra.Command {
	var collector cpi.Collector
	var config, output string
	command := &cobra.Command{
		Use:   "collect --director UUID",
		Short: "List, or remove, what calls that were cut short have left in the namespace",
		Long: "Lists what calls of a director's that were cut short have left in the namespace, as `cpi -collect` does where a\n" +
			"director runs, and with --confirm removes it.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := textOrJSON(output); err != nil {
				return err
			}
			var err error
			if collector.Config, err = configOr(config); err != nil {
				return err
			}
			collector.ConfigAssumed = config == ""
			client, _, err := connection.open()
			if err != nil {
				return err
			}
			if collector.Director == "" {
				return whose(command, client)
			}
			found, err := collector.Collect(command.Context(), client)
			return errors.Join(err, printCollected(command, found, err == nil, collector.Confirm, output))
		},
	}
	flags := command.Flags()
	flags.StringVar(&collector.Director, "director", "", "UUID of the director whose left-overs these are")
	flags.BoolVar(&collector.Confirm, "confirm", false, "Remove what is listed")
	flags.DurationVar(&collector.MinAge, "grace", 0, "Age at which no call is at something any more (by default the longest timeout)")
	addConfigFlag(flags, &config)
	addOutputFlag(command, &output)
	return command
}

// whose is the error about a director that was not named: it names those that there are.
func whose(command *cobra.Command, client *kube.Client) error {
	found, err := instances.List(command.Context(), client, instances.Filter{})
	if err != nil {
		return err
	}
	directors := map[string]bool{}
	for _, instance := range found {
		directors[strings.TrimSpace(instance.DirectorUUID+" "+instance.Director)] = true
	}
	there := "none has a machine in namespace " + client.Namespace
	if len(directors) > 0 {
		there = "in namespace " + client.Namespace + " have machines: " + strings.Join(slices.Sorted(maps.Keys(directors)), ", ")
	}
	return fmt.Errorf("whose left-overs? Name the director with --director UUID, as `bosh env` shows it; %s", there)
}

func printCollected(command *cobra.Command, found []cpi.CollectionResult, whole, confirmed bool, output string) error {
	out := command.OutOrStdout()
	if output == jsonOutput {
		encoder := json.NewEncoder(out)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		return encoder.Encode(append([]cpi.CollectionResult{}, found...))
	}
	for _, each := range found {
		fmt.Fprintln(out, each)
	}
	switch {
	case len(found) == 0 && whole:
		fmt.Fprintln(out, "nothing is left over")
	case len(found) > 0 && !confirmed:
		fmt.Fprintln(out, "nothing was changed; --confirm does it")
	}
	return nil
}
