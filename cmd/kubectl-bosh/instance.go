package main

import (
	"strings"

	"github.com/spf13/cobra"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/instances"
)

// completeInstance offers the names of the instances that are there for a command's first argument.
func completeInstance(connection *connection, filter *instances.Filter) cobra.CompletionFunc {
	return func(command *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		client, _, err := connection.open()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		found, err := instances.List(command.Context(), client, *filter)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var names []cobra.Completion
		for _, instance := range found {
			if strings.HasPrefix(instance.Name(), begun) {
				names = append(names, cobra.CompletionWithDesc(instance.Name(), instance.Deployment+" "+instance.Pod))
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
