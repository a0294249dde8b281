package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Process is a program that runs in the background. Its files NAME.pid and NAME.log are in Dir.
type Process struct {
	Name string
	Dir  string
	Args []string
	Env  []string
	// Child makes the process exit with the calling process. Otherwise it continues as a daemon.
	Child bool
}

func (p Process) pidFile() string { return filepath.Join(p.Dir, p.Name+".pid") }

// LogFile returns the path of the file with the output.
func (p Process) LogFile() string { return filepath.Join(p.Dir, p.Name+".log") }

// Start starts the program unless it is running.
func (p Process) Start() error {
	if p.Running() {
		return nil
	}
	if err := os.MkdirAll(p.Dir, 0o755); err != nil {
		return err
	}
	log, err := os.OpenFile(p.LogFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	command := exec.Command(p.Args[0], p.Args[1:]...)
	command.Stdout, command.Stderr = log, log
	command.Env = append(os.Environ(), p.Env...)
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if p.Child {
		command.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	if err := command.Start(); err != nil {
		return fmt.Errorf("start %s: %w (are the tools of scripts/build-tools in $PATH?)", p.Name, err)
	}
	go func() { _ = command.Wait() }() // an exited child must not remain as a zombie
	return os.WriteFile(p.pidFile(), fmt.Appendf(nil, "%d %s", command.Process.Pid, startTime(command.Process.Pid)), 0o644)
}

// PID returns the process's ID, or 0 if it is not running. It compares start times, because another process can reuse the ID.
func (p Process) PID() int {
	raw, err := os.ReadFile(p.pidFile())
	if err != nil {
		return 0
	}
	recordedPID, recordedStart, _ := strings.Cut(string(raw), " ")
	pid, err := strconv.Atoi(recordedPID)
	if err != nil || recordedStart == "" || startTime(pid) != recordedStart {
		return 0
	}
	return pid
}

// startTime returns field 22 of /proc/PID/stat, or "" if the process does not exist or is a zombie.
func startTime(pid int) string {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" {
		return ""
	}
	return fields[19]
}

// Running reports whether the process is running.
func (p Process) Running() bool { return p.PID() != 0 }

// Stop stops the process with SIGTERM, and with SIGKILL after 10 seconds.
func (p Process) Stop() error {
	return p.terminate(syscall.SIGTERM)
}

// Kill kills the process.
func (p Process) Kill() error {
	return p.terminate(syscall.SIGKILL)
}

func (p Process) terminate(signal syscall.Signal) error {
	pid := p.PID()
	if pid == 0 {
		return nil
	}
	if err := syscall.Kill(pid, signal); err != nil && err != syscall.ESRCH {
		return fmt.Errorf("stop %s: %w", p.Name, err)
	}
	exited := func(context.Context) (bool, error) { return !p.Running(), nil }
	if err := WaitUntil(context.Background(), 10*time.Second, p.Name+" to exit", exited); err != nil {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		if err := WaitUntil(context.Background(), 10*time.Second, p.Name+" to be killed", exited); err != nil {
			return err
		}
	}
	_ = os.Remove(p.pidFile())
	return nil
}

// stopAll stops the processes in reverse order.
func stopAll(processes []Process) error {
	for _, process := range slices.Backward(processes) {
		if err := process.Stop(); err != nil {
			return err
		}
	}
	return nil
}

// LastLines returns the last lines of the process's log, for error messages.
func (p Process) LastLines() string {
	raw, err := os.ReadFile(p.LogFile())
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}

// errExited is the error of a condition that cannot become true because a process exited.
var errExited = errors.New("exited")

// WaitUntil calls condition until it returns true or errExited, or until the limit is exceeded. Errors contain the event to wait for,
// and the last error of the condition.
func WaitUntil(ctx context.Context, limit time.Duration, event string, condition func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	var lastErr error
	for {
		done, err := condition(ctx)
		if done && err == nil {
			return nil
		}
		if errors.Is(err, errExited) {
			return fmt.Errorf("wait for %s: %w", event, err)
		}
		if err != nil {
			lastErr = err
		}
		select {
		case <-ctx.Done():
			if lastErr == nil {
				lastErr = ctx.Err()
			}
			return fmt.Errorf("timed out after %s waiting for %s: %w", limit, event, lastErr)
		case <-ticker.C:
		}
	}
}

// Run runs a program and returns its output.
func Run(ctx context.Context, name string, args ...string) (string, error) {
	return RunInput(ctx, "", name, args...)
}

// RunInput is like Run, with this standard input.
func RunInput(ctx context.Context, input, name string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, name, args...)
	command.Stdin = strings.NewReader(input)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
