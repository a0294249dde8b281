package main

import (
	"context"
	"os"
	"path/filepath"

	"bosh-kubernetes-cpi/test/bench/benchenv"
	"bosh-kubernetes-cpi/test/bench/report"
)

// measure runs the selected parts of the benchmark, and keeps the existing results of the other parts.
func (b bench) measure(ctx context.Context, dir string, programs benchenv.Programs) (*report.Results, error) {
	results, err := report.Read(b.out + "/results.json")
	if err != nil {
		return nil, err
	}
	if results == nil || results.Quick != b.quick {
		results = &report.Results{Quick: b.quick, Runs: map[string]report.Run{}}
	}
	results.Host = report.CurrentHost()
	binary, err := os.Stat(programs.CPI)
	if err != nil {
		return nil, err
	}
	results.BinarySizeMiB = float64(binary.Size()) / (1 << 20)
	for _, part := range []struct {
		name    string
		measure func(context.Context, *benchenv.Env, *report.Results) error
	}{
		{"calls", b.calls}, {"scale", b.scale}, {"shared", b.shared}, {"deploy", b.deploy},
	} {
		if !b.selected(part.name) {
			continue
		}
		results.Runs[part.name] = report.NewRun(ctx)
		if err := b.withEnv(ctx, filepath.Join(dir, part.name), programs, results, part.measure); err != nil {
			return nil, err
		}
	}
	if b.selected("node") && b.nodeRounds > 0 {
		results.Runs["node"] = report.NewRun(ctx)
		results.Node, err = b.measureNode(ctx, dir, programs)
	}
	return results, err
}

// withEnv runs a part with a new control plane, so that previous parts do not affect it.
func (b bench) withEnv(ctx context.Context, dir string, programs benchenv.Programs, results *report.Results,
	measure func(context.Context, *benchenv.Env, *report.Results) error) error {

	b.logf("starting a control plane with simulated nodes")
	env, err := benchenv.Start(ctx, dir, programs)
	if err != nil {
		return err
	}
	defer env.Close()
	return measure(ctx, env, results)
}

func (b bench) calls(ctx context.Context, env *benchenv.Env, results *report.Results) (err error) {
	results.Calls, err = measureCalls(ctx, env, b.rounds, b.logf)
	return err
}
