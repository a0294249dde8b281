package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// confirm asks the operator for confirmation, and fails without it.
func (o runOptions) confirm(command *cobra.Command, question string) error {
	if o.yes {
		return nil
	}
	fmt.Fprint(command.OutOrStdout(), question+" [yN]: ")
	confirmed := make(chan error, 1)
	go func() { confirmed <- readConfirmation(command.InOrStdin()) }() // a read does not end with the context
	select {
	case <-command.Context().Done():
		return errors.New("interrupted: the cluster was not changed")
	case err := <-confirmed:
		return err
	}
}

func readConfirmation(from io.Reader) error {
	line, err := bufio.NewReader(from).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if input := strings.ToLower(strings.TrimSpace(line)); input == "y" || input == "yes" {
		return nil
	}
	return errors.New("not confirmed: the cluster was not changed; use --yes to skip the confirmation")
}
