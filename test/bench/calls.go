package main

import (
	"context"
	"os"
	"path/filepath"

	"bosh-kubernetes-cpi/test/bench/figures"
	"bosh-kubernetes-cpi/test/bench/stand"
)

// program is what is run again and again, beside others.
type program struct {
	name  string
	input []byte
	args  []string
}

// measureCalls runs the programs in turns, so that what else the machine does is the same for all of them.
func measureCalls(ctx context.Context, s *stand.Stand, rounds int, tell func(string, ...any)) ([]figures.Call, error) {
	const namespace = "calls"
	if err := stand.Namespace(ctx, s.Client, namespace); err != nil {
		return nil, err
	}
	d, err := stand.NewDirector(s.Programs, s.Dir, namespace, s.Plane.Kubeconfig("admin"), namespace)
	if err != nil {
		return nil, err
	}
	if _, err := createVM(ctx, d, "one", plain()); err != nil {
		return nil, err
	}
	programs, err := programs(s, d, namespace, vmOf("one"))
	if err != nil {
		return nil, err
	}
	calls := make([]figures.Call, len(programs))
	for round := range rounds {
		if round%10 == 0 {
			tell("one call: round %d of %d", round+1, rounds)
		}
		for i := range programs {
			i = (i + round) % len(programs) // none always follows the same other
			each := programs[i]
			usage, _, err := stand.Measure(ctx, s.Launcher, each.input, each.args[0], each.args[1:]...)
			if err != nil {
				return nil, err
			}
			calls[i].Name = each.name
			calls[i].Add(usage)
		}
	}
	return calls, nil
}

func programs(s *stand.Stand, d stand.Director, namespace, vm string) ([]program, error) {
	info, err := stand.Request("info")
	if err != nil {
		return nil, err
	}
	has, err := stand.Request("has_vm", vm)
	if err != nil {
		return nil, err
	}
	ca := filepath.Join(s.Dir, "ca.crt")
	if err := os.WriteFile(ca, s.Config.CAData, 0o600); err != nil {
		return nil, err
	}
	cpi := []string{d.CPI, "-configPath", d.Config}
	return []program{
		{figures.Info, info, cpi},
		{figures.HasVM, has, cpi},
		{figures.Curl, nil, []string{"curl", "--silent", "--show-error", "--fail", "--cacert", ca, "--header", "Authorization: Bearer " + s.Config.BearerToken,
			s.Config.Host + "/api/v1/namespaces/" + namespace + "/pods/" + vm}},
		{figures.Kubectl, nil, []string{"kubectl", "--kubeconfig", s.Plane.Kubeconfig("admin"), "--namespace", namespace, "get", "pod", vm}},
	}, nil
}
