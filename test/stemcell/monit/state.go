package monit

import (
	"encoding/json"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
)

// state is kept across restarts of the daemon, in JSON. The real monit writes a binary file.
type state struct {
	Unmonitored map[string]bool `json:"unmonitored"`
}

// readState reads the state of the previous daemon. It returns an empty state if the file does not exist or is invalid.
func readState(path string) state {
	var previous state
	if content, err := os.ReadFile(path); err == nil {
		_ = json.Unmarshal(content, &previous)
	}
	return previous
}

// saveState stores which services are not monitored.
func (d *Daemon) saveState() error {
	current := state{Unmonitored: map[string]bool{}}
	d.withLock(func() {
		for _, s := range d.services {
			if s.monitor == notMonitored {
				current.Unmonitored[s.Name] = true
			}
		}
	})
	content, err := json.Marshal(current)
	if err == nil {
		err = replaceFile(d.options.StateFile, content)
	}
	if err != nil {
		return fmt.Errorf("save the state: %w", err)
	}
	return nil
}

// replaceFile replaces a file atomically. The agent can kill the daemon at any time, and after an incomplete write, the next daemon
// would start stopped services. Like monit, replaceFile writes through a symbolic link.
func replaceFile(path string, content []byte) error {
	if target, err := os.Readlink(path); err == nil {
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
	}
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// DefaultOptions returns the default paths: the control file of BOSH's stemcells, and the state in the user's home directory.
func DefaultOptions() Options {
	home := os.Getenv("HOME")
	if home == "" {
		home = "/"
		if current, err := user.LookupId(strconv.Itoa(os.Getuid())); err == nil {
			home = current.HomeDir
		}
	}
	options := Options{ControlFile: "/var/vcap/bosh/etc/monitrc", StateFile: filepath.Join(home, ".monit.state"),
		PIDFile: filepath.Join(home, ".monit.pid")}
	if os.Getuid() == 0 {
		options.PIDFile = "/var/run/monit.pid"
	}
	return options
}

func writePIDFile(path string) error {
	if err := os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o644); err != nil { //nolint:gosec // like monit
		return fmt.Errorf("write the daemon's pid file: %w", err)
	}
	return nil
}

func removePIDFile(path string) { _ = os.Remove(path) }

// daemonPID returns the process ID of the running daemon, or 0. It ignores a process of another program that reuses the ID.
func daemonPID(path string) int {
	content, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil || pid == os.Getpid() {
		return 0
	}
	monit, _ := os.ReadFile("/proc/self/comm")
	program, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm"))
	if err != nil || string(program) != string(monit) {
		return 0
	}
	return pid
}
