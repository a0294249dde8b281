package main

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"bosh-kubernetes-cpi/test/bench/figures"
)

var (
	cpuModel = regexp.MustCompile(`(?m)^model name\s*: (.*)$`)
	memTotal = regexp.MustCompile(`(?m)^MemTotal:\s*(\d+) kB$`)
)

// hostInfo returns the properties of the host.
func hostInfo() figures.Host {
	m := figures.Host{CPU: firstMatch(cpuModel, "/proc/cpuinfo"), Cores: runtime.NumCPU(), Go: runtime.Version()}
	kib, _ := strconv.Atoi(firstMatch(memTotal, "/proc/meminfo"))
	m.Memory = (kib + 1<<19) >> 20
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	m.Kernel = strings.TrimSpace(string(kernel))
	return m
}

// newRun returns the current time, commit and load.
func newRun(ctx context.Context) figures.Run {
	run := figures.Run{Taken: time.Now().UTC().Format(time.DateTime), Commit: gitCommit(ctx)}
	load, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(load), " ")
	run.Load, _ = strconv.ParseFloat(first, 64)
	return run
}

func firstMatch(pattern *regexp.Regexp, path string) string {
	raw, _ := os.ReadFile(path)
	match := pattern.FindSubmatch(raw)
	if match == nil {
		return ""
	}
	return string(match[1])
}

// gitCommit returns the checked-out commit, with a suffix if there are changes, or "" without git.
func gitCommit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
