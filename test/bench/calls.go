package main

import (
	"context"
	"os"
	"path/filepath"

	"bosh-kubernetes-cpi/test/bench/benchenv"
	"bosh-kubernetes-cpi/test/bench/report"
)

// callProgram is a program to measure.
type callProgram struct {
	name  string
	input []byte
	args  []string
}

// measureCalls runs the programs in turn, so that other load on the host affects them equally.
func measureCalls(ctx context.Context, env *benchenv.Env, rounds int, logf func(string, ...any)) ([]report.ProgramCost, error) {
	const namespace = "calls"
	if err := benchenv.CreateNamespace(ctx, env.Client, namespace); err != nil {
		return nil, err
	}
	d, err := benchenv.NewDirector(env.Programs, env.Dir, namespace, env.Plane.Kubeconfig("admin"), namespace, "")
	if err != nil {
		return nil, err
	}
	if _, err := createVM(ctx, d, "one", plainVM()); err != nil {
		return nil, err
	}
	programs, err := callPrograms(env, d, namespace, vmCID("one"))
	if err != nil {
		return nil, err
	}
	calls := make([]report.ProgramCost, len(programs))
	for round := range rounds {
		if round%10 == 0 {
			logf("single calls: round %d of %d", round+1, rounds)
		}
		for i := range programs {
			i = (i + round) % len(programs) // varies the order
			program := programs[i]
			usage, _, err := benchenv.Measure(ctx, env.Launcher, program.input, program.args[0], program.args[1:]...)
			if err != nil {
				return nil, err
			}
			calls[i].Name = program.name
			calls[i].Add(usage)
		}
	}
	return calls, nil
}

func callPrograms(env *benchenv.Env, d benchenv.Director, namespace, vm string) ([]callProgram, error) {
	info, err := benchenv.EncodeRequest("info")
	if err != nil {
		return nil, err
	}
	hasVM, err := benchenv.EncodeRequest("has_vm", vm)
	if err != nil {
		return nil, err
	}
	ca := filepath.Join(env.Dir, "ca.crt")
	if err := os.WriteFile(ca, env.Config.CAData, 0o600); err != nil {
		return nil, err
	}
	cpi := []string{d.CPI, "-configPath", d.Config}
	return []callProgram{
		{report.Info, info, cpi},
		{report.HasVM, hasVM, cpi},
		{report.Curl, nil, []string{"curl", "--silent", "--show-error", "--fail", "--cacert", ca, "--header", "Authorization: Bearer " + env.Config.BearerToken,
			env.Config.Host + "/api/v1/namespaces/" + namespace + "/pods/" + vm}},
		{report.Kubectl, nil, []string{"kubectl", "--kubeconfig", env.Plane.Kubeconfig("admin"), "--namespace", namespace, "get", "pod", vm}},
	}, nil
}
