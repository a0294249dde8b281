package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"bosh-kubernetes-cpi/cmd/kubectl-bosh/environment"
	"bosh-kubernetes-cpi/kube/document"
)

// configureDirector uploads the cloud config, the runtime config of BOSH DNS, and the stemcell, and prints how to log in. It keeps a config
// that the director has.
func (r *environmentRun) configureDirector(ctx context.Context, plan *environment.Plan) error {
	login, err := r.dir.Login()
	if err != nil {
		return err
	}
	if !r.dir.HasClusterDNS() {
		r.report("cloud config", "not uploaded: the address of the cluster's DNS is unknown; set cluster_dns in "+r.dir.CloudConfigVarsPath()+
			", and run the same command again")
	}
	err = r.withProxy(ctx, func(ctx context.Context, proxy ...string) error {
		variables := append(environment.Assignments(login.Variables()), proxy...)
		for _, step := range r.dir.DirectorSteps(r.options.boshProgram(), plan) {
			if err := r.command.Context().Err(); err != nil {
				return err
			}
			if err := r.runDirectorStep(ctx, step, variables); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(r.command.OutOrStdout())
	printLines(r.command.OutOrStdout(), "Next steps", r.dir.NextSteps(plan, r.options.noProxy))
	return nil
}

// runDirectorStep runs the command of the step with these environment variables, unless the director has what it uploads.
func (r *environmentRun) runDirectorStep(ctx context.Context, step environment.DirectorStep, variables []string) error {
	exists, err := r.directorHas(ctx, step, variables)
	if err != nil {
		return err
	}
	if exists {
		r.report(step.Name, "kept: the director has one")
		return nil
	}
	fmt.Fprintln(r.command.OutOrStdout())
	err = runCommand(ctx, append(step.Command, "--tty", "--non-interactive"), variables...)
	if _, failed := errors.AsType[exitStatus](err); failed {
		fmt.Fprintf(r.command.ErrOrStderr(), "\nerror: the director runs, but the %s could not be uploaded; see the output above. "+
			"To continue, run the same command again, or log in with `kubectl bosh env --dir %s`, and run: %s\n",
			step.Name, environment.QuoteCommand([]string{r.dir.Path}), environment.QuoteCommand(step.Command))
	}
	return err
}

// directorHas reports whether the director has a config of the kind of this step.
func (r *environmentRun) directorHas(ctx context.Context, step environment.DirectorStep, variables []string) (bool, error) {
	if len(step.Query) == 0 {
		return false, nil
	}
	query := exec.CommandContext(ctx, step.Query[0], step.Query[1:]...) //nolint:gosec // a command of the BOSH CLI
	query.Env, query.Stderr = append(os.Environ(), variables...), r.command.ErrOrStderr()
	out, err := query.Output()
	if err != nil {
		return false, fmt.Errorf("%s: %w: %s", environment.QuoteCommand(step.Query), err, bytes.TrimSpace(out))
	}
	var printed struct {
		Tables []struct{ Rows []any }
	}
	if err := document.Unmarshal("the output of "+environment.QuoteCommand(step.Query), out, &printed); err != nil {
		return false, err
	}
	return len(printed.Tables) > 0 && len(printed.Tables[0].Rows) > 0, nil
}
