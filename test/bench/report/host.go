package report

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"
)

var (
	cpuModelPattern = regexp.MustCompile(`(?m)^model name\s*: (.*)$`)
	memTotalPattern = regexp.MustCompile(`(?m)^MemTotal:\s*(\d+) kB$`)
)

// CurrentHost returns the properties of the host.
func CurrentHost() Host {
	host := Host{CPU: firstMatch(cpuModelPattern, "/proc/cpuinfo"), Cores: runtime.NumCPU(), Go: runtime.Version()}
	kib, _ := strconv.Atoi(firstMatch(memTotalPattern, "/proc/meminfo"))
	host.Memory = (kib + 1<<19) >> 20
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	host.Kernel = strings.TrimSpace(string(kernel))
	return host
}

// NewRun returns a Run with the current time, commit and load.
func NewRun(ctx context.Context) Run {
	run := Run{Taken: time.Now().UTC().Format(time.DateTime), Commit: gitCommit(ctx)}
	averages, _ := os.ReadFile("/proc/loadavg")
	lastMinute, _, _ := strings.Cut(string(averages), " ")
	run.Load, _ = strconv.ParseFloat(lastMinute, 64)
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

// gitCommit returns the checked-out commit, with a suffix if there are uncommitted changes. It returns "" outside a Git repository.
func gitCommit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
