package main

import (
	"context"
	"os"
	"path/filepath"

	"bosh-kubernetes-cpi/test/bench/benchenv"
	"bosh-kubernetes-cpi/test/bench/figures"
)

// callProgram is a program to measure.
type callProgram struct {
	name  string
	input []byte
	args  []string
}

// measureCalls runs the programs in turn, so that other load on the host affects them equally.
func measureCalls(ctx context.Context, s *benchenv.Env, rounds int, logf func(string, ...any)) ([]figures.ProgramCost, error) {
	const namespace = "calls"
	if err := benchenv.CreateNamespace(ctx, s.Client, namespace); err != nil {
		return nil, err
	}
	d, err := benchenv.NewDirector(s.Programs, s.Dir, namespace, s.Plane.Kubeconfig("admin"), namespace)
	if err != nil {
		return nil, err
	}
	if _, err := createVM(ctx, d, "one", plainVM()); err != nil {
		return nil, err
	}
	programs, err := callPrograms(s, d, namespace, vmCID("one"))
	if err != nil {
		return nil, err
	}
	calls := make([]figures.ProgramCost, len(programs))
	for round := range rounds {
		if round%10 == 0 {
			logf("single calls: round %d of %d", round+1, rounds)
		}
		for i := range programs {
			i = (i + round) % len(programs) // varies the order
			program := programs[i]
			usage, _, err := benchenv.Measure(ctx, s.Launcher, program.input, program.args[0], program.args[1:]...)
			if err != nil {
				return nil, err
			}
			calls[i].Name = program.name
			calls[i].Add(usage)
		}
	}
	return calls, nil
}

func callPrograms(s *benchenv.Env, d benchenv.Director, namespace, vm string) ([]callProgram, error) {
	info, err := benchenv.EncodeRequest("info")
	if err != nil {
		return nil, err
	}
	hasVM, err := benchenv.EncodeRequest("has_vm", vm)
	if err != nil {
		return nil, err
	}
	ca := filepath.Join(s.Dir, "ca.crt")
	if err := os.WriteFile(ca, s.Config.CAData, 0o600); err != nil {
		return nil, err
	}
	cpi := []string{d.CPI, "-configPath", d.Config}
	return []callProgram{
		{figures.Info, info, cpi},
		{figures.HasVM, hasVM, cpi},
		{figures.Curl, nil, []string{"curl", "--silent", "--show-error", "--fail", "--cacert", ca, "--header", "Authorization: Bearer " + s.Config.BearerToken,
			s.Config.Host + "/api/v1/namespaces/" + namespace + "/pods/" + vm}},
		{figures.Kubectl, nil, []string{"kubectl", "--kubeconfig", s.Plane.Kubeconfig("admin"), "--namespace", namespace, "get", "pod", vm}},
	}, nil
}
