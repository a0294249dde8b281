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

// state is what outlives a daemon. (Monit's own file is binary.)
type state struct {
	Unmonitored map[string]bool `json:"unmonitored"`
}

// readState reads what the last daemon left; nothing when there is no such file, or none that can be read.
func readState(path string) state {
	var remembered state
	if content, err := os.ReadFile(path); err == nil {
		_ = json.Unmarshal(content, &remembered)
	}
	return remembered
}

// saveState notes which services are not monitored.
func (d *Daemon) saveState() error {
	now := state{Unmonitored: map[string]bool{}}
	d.withLock(func() {
		for _, s := range d.services {
			if s.monitor == notMonitored {
				now.Unmonitored[s.Name] = true
			}
		}
	})
	content, err := json.Marshal(now)
	if err == nil {
		err = replaceFile(d.options.StateFile, content)
	}
	if err != nil {
		return fmt.Errorf("saving which services are monitored: %w", err)
	}
	return nil
}

// replaceFile replaces a file as a whole: agents kill the daemon at any moment, and half a file would have services started
// that were stopped. It writes through a link, as monit does: the file may have been put somewhere else.
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

// DefaultOptions are where monit looks for its files when it is told nothing: the control file of BOSH's
// stemcells, and the state in the user's home.
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
	if err := os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o644); err != nil { //nolint:gosec // as monit's
		return fmt.Errorf("writing the daemon's pid file: %w", err)
	}
	return nil
}

func removePIDFile(path string) { _ = os.Remove(path) }

// daemonPID is the number of the daemon that runs, or 0. The number of one that was killed may be another
// program's by now.
func daemonPID(path string) int {
	content, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil || pid == os.Getpid() {
		return 0
	}
	own, _ := os.ReadFile("/proc/self/comm")
	other, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm"))
	if err != nil || string(own) != string(other) {
		return 0
	}
	return pid
}
