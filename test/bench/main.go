// Command bench measures the cost of the CPI's calls and of similar programs, and writes docs/bench/results.json. It exits
// with status 1 if a call takes more requests or CPU time than in the previous results, beyond noise.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"bosh-kubernetes-cpi/test/bench/benchenv"
	"bosh-kubernetes-cpi/test/bench/report"
)

func main() {
	out := flag.String("out", "docs/bench", "`directory` of results.json")
	baselinePath := flag.String("baseline", "docs/bench/results.json", "`file` with the results to compare with")
	parts := flag.String("parts", strings.Join(partNames, ","), "comma-separated `parts` to measure")
	quick := flag.Bool("quick", false, "run the small benchmark, which takes a minute or two")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	regressions, err := run(ctx, bench{out: *out, parts: strings.Split(*parts, ","), sizes: sizesFor(*quick), start: time.Now()}, *baselinePath)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	for _, regression := range regressions {
		fmt.Fprintln(os.Stderr, "regression:", regression)
	}
	if len(regressions) > 0 {
		os.Exit(1)
	}
}

// partNames are the names of the parts, in the order of measurement.
var partNames = []string{"calls", "scale", "shared", "deploy", "node"}

// bench is a run of the benchmark.
type bench struct {
	out   string
	parts []string
	sizes
	start time.Time
}

// sizes configure how many VMs, rounds and processes a benchmark has.
type sizes struct {
	quick      bool
	rounds     int   // runs of each compared program
	lifecycles int   // lifecycles of a VM and its disk, for each number of VMs
	vmCounts   []int // numbers of VMs with two disks each
	sharedVMs  int   // VMs of one instance group, or behind one Service
	deploys    []deploySize
	nodeRounds int // rounds on the real node
}

type deploySize struct{ vms, processes, rounds int }

func sizesFor(quick bool) sizes {
	if quick {
		return sizes{quick: true, rounds: 15, lifecycles: 3, vmCounts: []int{10, 200}, sharedVMs: 50, deploys: []deploySize{{10, 5, 1}}}
	}
	return sizes{rounds: 60, lifecycles: 5, vmCounts: []int{10, 1000, 5000}, sharedVMs: 500, deploys: []deploySize{{20, 10, 5}, {100, 50, 3}}, nodeRounds: 7}
}

// selected reports whether the part is measured.
func (b bench) selected(part string) bool { return slices.Contains(b.parts, part) }

// logf prints the progress.
func (b bench) logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%4.0f s  %s\n", time.Since(b.start).Seconds(), fmt.Sprintf(format, args...))
}

// run measures, writes the results, and returns regressions from the baseline.
func run(ctx context.Context, b bench, baselinePath string) ([]string, error) {
	baseline, err := report.Read(baselinePath)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "bosh-kubernetes-cpi-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	b.logf("building the CPI")
	programs, err := benchenv.Build(ctx, dir)
	if err != nil {
		return nil, err
	}
	results, err := b.measure(ctx, dir, programs)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(b.out, 0o755); err != nil {
		return nil, err
	}
	if err := results.Write(filepath.Join(b.out, "results.json")); err != nil {
		return nil, err
	}
	for _, goal := range results.Goals() {
		fmt.Fprintln(os.Stdout, goal)
	}
	if baseline == nil {
		return nil, nil
	}
	return report.Regressions(baseline, results), nil
}
