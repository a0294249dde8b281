package main

import (
	"context"
	"os"
	"path/filepath"

	"bosh-kubernetes-cpi/test/bench/benchenv"
	"bosh-kubernetes-cpi/test/bench/figures"
)

// measure runs the selected parts, and keeps the existing results of the other parts.
func (b bench) measure(ctx context.Context, dir string, programs benchenv.Programs) (*figures.Results, error) {
	results, err := figures.Read(b.out + "/results.json")
	if err != nil {
		return nil, err
	}
	if results == nil || results.Quick != b.quick {
		results = &figures.Results{Quick: b.quick, Runs: map[string]figures.Run{}}
	}
	results.Host = hostInfo()
	program, err := os.Stat(programs.CPI)
	if err != nil {
		return nil, err
	}
	results.Binary = float64(program.Size()) / (1 << 20)
	for _, part := range []struct {
		name    string
		measure func(context.Context, *benchenv.Env, *figures.Results) error
	}{
		{"calls", b.calls}, {"scale", b.scale}, {"shared", b.shared}, {"deploy", b.deploy},
	} {
		if !b.selected(part.name) {
			continue
		}
		results.Runs[part.name] = newRun(ctx)
		if err := b.withEnv(ctx, filepath.Join(dir, part.name), programs, results, part.measure); err != nil {
			return nil, err
		}
	}
	if b.selected("node") && b.nodeRounds > 0 {
		results.Runs["node"] = newRun(ctx)
		results.Node, err = b.measureNode(ctx, dir, programs)
	}
	return results, err
}

// withEnv runs a part with a new control plane, so that previous parts do not affect it.
func (b bench) withEnv(ctx context.Context, dir string, programs benchenv.Programs, results *figures.Results,
	measure func(context.Context, *benchenv.Env, *figures.Results) error) error {

	b.logf("starting a control plane with simulated nodes")
	s, err := benchenv.Start(ctx, dir, programs)
	if err != nil {
		return err
	}
	defer s.Close()
	return measure(ctx, s, results)
}

func (b bench) calls(ctx context.Context, s *benchenv.Env, results *figures.Results) (err error) {
	results.Calls, err = measureCalls(ctx, s, b.rounds, b.logf)
	return err
}
