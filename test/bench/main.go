// Command bench measures what the CPI's calls cost, beside what they can be compared with, and writes docs/bench/results.json and a
// page of it. It ends with status 1 when a call takes more requests or CPU time than in the results that were there, beyond noise.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"bosh-kubernetes-cpi/test/bench/benchenv"
	"bosh-kubernetes-cpi/test/bench/figures"
	"bosh-kubernetes-cpi/test/bench/page"
)

func main() {
	out := flag.String("out", "docs/bench", "folder of results.json and index.html; run from the repository's root")
	baselinePath := flag.String("before", "docs/bench/results.json", "the results to compare with")
	parts := flag.String("parts", strings.Join(allParts, ","), "what to measure")
	quick := flag.Bool("quick", false, "measure the small form, in a minute or two")
	pageOnly := flag.Bool("page", false, "measure nothing, and make the page of the results that are there anew")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *pageOnly {
		if err := writePage(*out); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(2)
		}
		return
	}
	regressions, err := run(ctx, bench{out: *out, parts: strings.Split(*parts, ","), sizes: sizesFor(*quick), start: time.Now()}, *baselinePath)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	for _, regression := range regressions {
		fmt.Fprintln(os.Stderr, "worse than before:", regression)
	}
	if len(regressions) > 0 {
		os.Exit(1)
	}
}

// allParts are the parts in their order.
var allParts = []string{"calls", "scale", "shared", "deploy", "node"}

// bench is one run.
type bench struct {
	out   string
	parts []string
	sizes
	start time.Time
}

// sizes say how much is measured.
type sizes struct {
	quick      bool
	rounds     int      // of programs side by side
	lifecycles int      // of a machine and its disk, in each crowd
	vmCounts   []int    // machines, each with two disks
	sharedVMs  int      // machines of one instance group, or behind one Service
	deploys    [][2]int // machines and processes
	nodeRounds int      // times on the real node
}

func sizesFor(quick bool) sizes {
	if quick {
		return sizes{quick: true, rounds: 15, lifecycles: 3, vmCounts: []int{10, 200}, sharedVMs: 50, deploys: [][2]int{{10, 5}}}
	}
	return sizes{rounds: 60, lifecycles: 5, vmCounts: []int{10, 1000, 5000}, sharedVMs: 500, deploys: [][2]int{{20, 10}, {100, 50}}, nodeRounds: 7}
}

// selected reports whether the part is to be run.
func (b bench) selected(part string) bool { return slices.Contains(b.parts, part) }

// logf shows how far the run is.
func (b bench) logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%4.0f s  %s\n", time.Since(b.start).Seconds(), fmt.Sprintf(format, args...))
}

// run measures, writes, and returns what is worse than before.
func run(ctx context.Context, b bench, baselinePath string) ([]string, error) {
	baseline, err := figures.Read(baselinePath)
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
	if err := writeResults(results, b.out); err != nil {
		return nil, err
	}
	for _, goal := range results.Goals() {
		fmt.Fprintln(os.Stdout, goal)
	}
	b.logf("see %s/index.html", b.out)
	if baseline == nil {
		return nil, nil
	}
	return figures.Regressions(baseline, results), nil
}

func writeResults(results *figures.Results, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	if err := results.Write(folder + "/results.json"); err != nil {
		return err
	}
	return writePage(folder)
}

// writePage makes the page of the results in the folder.
func writePage(folder string) error {
	results, err := figures.Read(folder + "/results.json")
	if err != nil {
		return err
	}
	if results == nil {
		return fmt.Errorf("there is no %s/results.json: run make bench", folder)
	}
	html, err := page.Render(results)
	if err != nil {
		return err
	}
	return os.WriteFile(folder+"/index.html", html, 0o644)
}
