//go:build linux

package boot

import (
	"context"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/system"
)

// inBackground is the argument of the process that RebootProgram starts.
const inBackground = "--bosh-node-in-background"

// RebootProgram restarts a VM with runit: Kubernetes restarts a container after its init program exits. It stops services and jobs, as
// runit does before a halt, and ends the init program runsvdir. It is reboot, halt, poweroff and shutdown, and ignores their arguments.
//
// It returns when it started itself in the background, so that the session that called it can end.
func RebootProgram(sys system.System, arguments []string) error {
	signal.Ignore(unix.SIGHUP, unix.SIGTERM) // also in the process in the background
	if !slices.Equal(arguments, []string{inBackground}) {
		return sys.StartProcess("/proc/self/exe", []string{"reboot", inBackground}, false)
	}
	// Another call does not wait for this process.
	if err := sys.WriteFile("/proc/self/comm", []byte("reboot"), 0o644); err != nil {
		return err
	}
	return rebootVM(context.Background(), sys, system.Pause)
}

// rebootVM ends the init program in any case, after at most 20 seconds.
func rebootVM(ctx context.Context, sys system.System, pause func(context.Context, time.Duration) error) error {
	// Without any service, there is nothing to stop.
	if services, err := sys.ReadDir("/etc/service"); err == nil && len(services) > 0 {
		arguments := []string{"-w", "10", "force-stop"}
		for _, service := range services {
			arguments = append(arguments, sys.Path(filepath.Join("/etc/service", service)))
		}
		_, _ = sys.Run(ctx, "sv", arguments...)
	}
	for _, process := range processesToStop(sys) {
		_ = sys.Kill(process, unix.SIGTERM) // it may have exited
	}
	for range 100 {
		if len(processesToStop(sys)) == 0 {
			break
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return sys.Kill(1, unix.SIGHUP)
}

// supervisors are the processes that exit with the init program, or are this program.
var supervisors = []string{"runsv", "runsvdir", "svlogd", "reboot", "halt", "poweroff", "shutdown"}

// processesToStop returns all processes of the VM except supervisors. A process that cannot be examined is not waited for: the init program
// ends in any case.
func processesToStop(sys system.System) (found []int) {
	names, err := sys.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, name := range names {
		process, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		comm, err := sys.ReadFile(filepath.Join("/proc", name, "comm"))
		if err == nil && !slices.Contains(supervisors, strings.TrimSuffix(string(comm), "\n")) {
			found = append(found, process)
		}
	}
	return found
}
