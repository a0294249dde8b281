//go:build linux

package shutdown

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/process"
	"bosh-kubernetes-cpi/cpi/node/system"
)

// jobsDirectory contains a directory for each job of the VM.
const jobsDirectory = "/var/vcap/jobs"

// drain runs the drain scripts of all jobs at the same time, as the agent does when the director stops them: https://bosh.io/docs/drain.
// It waits until they have drained, but not longer than the timeout. It does nothing if the director has stopped the jobs.
func (v vm) drain(ctx context.Context, timeout time.Duration) error {
	stopped, err := v.sys.Exists("/var/vcap/monit/stopped")
	if err != nil || stopped {
		return err
	}
	scripts, err := v.drainScripts()
	if err != nil {
		return err
	}
	if err := v.suspendMonit(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var jobs sync.WaitGroup
	for _, script := range scripts {
		jobs.Go(func() { v.drainJob(ctx, script) })
	}
	jobs.Wait()
	return nil
}

// drainScripts returns the paths of the drain scripts.
func (v vm) drainScripts() ([]string, error) {
	jobs, err := v.sys.ReadDir(jobsDirectory)
	if system.Gone(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("list the jobs: %w", err)
	}
	var scripts []string
	for _, job := range jobs {
		script := jobsDirectory + "/" + job + "/bin/drain"
		stat, err := v.sys.Stat(script)
		if err != nil && !system.Gone(err) {
			return nil, fmt.Errorf("find the drain script of job %s: %w", job, err)
		}
		if stat.Mode&unix.S_IFMT == unix.S_IFREG && stat.Mode&0o111 != 0 {
			scripts = append(scripts, script)
		}
	}
	return scripts, nil
}

// suspendMonit suspends monit, which would restart the processes that a drain script stops. The shutdown wakes it up.
func (v vm) suspendMonit(ctx context.Context) error {
	isMonit := func(p process.Process) bool { return p.Name == "monit" }
	if err := v.signal(ctx, []unix.Signal{unix.SIGSTOP}, isMonit, service, job); err != nil {
		return fmt.Errorf("suspend monit: %w", err)
	}
	return nil
}

// drainJob runs a drain script until it has drained its job, it fails, or ctx is done. The script prints the number of seconds to wait.
// After a negative number, it runs again.
func (v vm) drainJob(ctx context.Context, script string) {
	for change := "job_shutdown"; ; change = "job_check_status" {
		output, err := v.sys.RunGroup(ctx, v.sys.Path(script), change, "hash_unchanged")
		if err != nil || output.Status != 0 {
			return
		}
		seconds, err := strconv.ParseInt(strings.TrimSpace(output.Stdout), 10, 32)
		if err != nil {
			return
		}
		if system.Pause(ctx, time.Duration(max(seconds, -seconds))*time.Second) != nil || seconds >= 0 {
			return
		}
	}
}
