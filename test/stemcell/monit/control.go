package monit

import (
	"slices"
	"strings"
	"time"
)

// pollInterval is how often monit looks whether a process has come or gone.
const pollInterval = 100 * time.Millisecond

// control does an action with a service, and with those that it depends on or that depend on it.
func (d *Daemon) control(s *service, action Action) {
	switch action {
	case Start:
		d.startOne(s)
	case Stop:
		visited := map[*service]bool{}
		d.stopDependents(s, visited, true)
		d.stop(s, visited, true)
	case Restart:
		d.restart(s)
	case Monitor:
		for _, prerequisite := range append(d.prerequisites(s), s) {
			d.withLock(prerequisite.enable)
		}
	case Unmonitor:
		for _, dependent := range append(d.dependents(s), s) {
			d.withLock(dependent.disable)
		}
	}
}

// withLock changes a service as those that ask for its status see it.
func (d *Daemon) withLock(change func()) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	change()
}

func (d *Daemon) startOne(s *service) {
	if s.Type == Process && s.pid() != 0 {
		d.log.printf("debug", "Process already running -- process %s", s.Name)
		d.withLock(s.enable)
		return
	}
	if s.Type == Process && s.Start == nil {
		d.log.printf("debug", "Start method not defined -- process %s", s.Name)
		d.withLock(s.enable)
		return
	}
	d.stopDependents(s, map[*service]bool{}, false)
	visited := map[*service]bool{}
	d.start(s, visited)
	d.startDependents(s, visited)
}

// restart starts the service again only once it is stopped; when it does not stop, the next check tries anew.
func (d *Daemon) restart(s *service) {
	d.log.printf("info", "'%s' trying to restart", s.Name)
	if s.Restart != nil {
		d.spawn(s, s.Restart, "restart")
		d.withLock(s.enable)
		return
	}
	visited := map[*service]bool{}
	d.stopDependents(s, visited, false)
	if !d.stop(s, visited, false) {
		d.withLock(s.enable)
		return
	}
	visited = map[*service]bool{}
	d.start(s, visited)
	d.startDependents(s, visited)
}

// start starts what the service depends on, then the service, and waits for its process.
func (d *Daemon) start(s *service, visited map[*service]bool) {
	if visited[s] {
		return
	}
	visited[s] = true
	for _, name := range s.DependsOn {
		d.start(d.find(name), visited)
	}
	if s.Start != nil && (s.Type != Process || s.pid() == 0) {
		d.log.printf("info", "'%s' start: %s", s.Name, s.Start.Arguments[0])
		d.spawn(s, s.Start, "start")
		if s.Type == Process {
			d.outcome(s, d.wait(s.Start.Timeout, func() bool { return s.pid() != 0 }), "started", "failed to start")
		}
	}
	d.withLock(s.enable)
}

// stop runs the stop program of a process that runs, whether the service is monitored or not, and waits
// until the process is gone. It returns false when the process stays.
func (d *Daemon) stop(s *service, visited map[*service]bool, unmonitor bool) bool {
	if visited[s] {
		return true
	}
	visited[s] = true
	stopped := true
	switch {
	case s.Type == Process && s.pid() == 0:
		d.recordRecovery(s, execution, "stopped") // a start that failed is no reason to call the service's stop a failure
	case s.Stop != nil:
		d.log.printf("info", "'%s' stop: %s", s.Name, s.Stop.Arguments[0])
		d.spawn(s, s.Stop, "stop")
		if s.Type == Process {
			stopped = d.wait(s.Stop.Timeout, func() bool { return s.pid() == 0 })
			d.outcome(s, stopped, "stopped", "failed to stop")
		}
	}
	if unmonitor {
		d.withLock(s.disable)
	}
	return stopped
}

// outcome notes how a start or a stop went; when monit is to end, it does not know.
func (d *Daemon) outcome(s *service, succeeded bool, onSuccess, onFailure string) {
	switch {
	case succeeded:
		d.recordRecovery(s, execution, onSuccess)
	case !d.isEnding():
		d.recordFailure(s, execution, onFailure, Alert, nil)
	}
}

func (d *Daemon) stopDependents(s *service, visited map[*service]bool, unmonitor bool) {
	for _, dependant := range d.dependents(s) {
		d.stop(dependant, visited, unmonitor)
	}
}

func (d *Daemon) startDependents(s *service, visited map[*service]bool) {
	for _, dependant := range slices.Backward(d.dependents(s)) {
		d.start(dependant, visited)
	}
}

// dependents are the services that depend on this one, directly or not, the outermost first.
func (d *Daemon) dependents(s *service) []*service {
	var all []*service
	for _, other := range d.services {
		for _, name := range other.DependsOn {
			if name == s.Name {
				all = append(append(all, d.dependents(other)...), other)
			}
		}
	}
	return all
}

func (d *Daemon) prerequisites(s *service) []*service {
	var all []*service
	for _, name := range s.DependsOn {
		other := d.find(name)
		all = append(append(all, d.prerequisites(other)...), other)
	}
	return all
}

func (d *Daemon) find(name string) *service {
	for _, s := range d.services {
		if s.Name == name {
			return s
		}
	}
	return nil
}

func (d *Daemon) spawn(s *service, program *Program, event string) {
	if err := program.spawn(s.Name, event, strings.Join(program.Arguments, " ")); err != nil {
		d.log.printf("error", "'%s' %v", s.Name, err)
	}
}

// wait waits until the condition holds, and returns false when it does not in time, or monit is to end.
func (d *Daemon) wait(timeout time.Duration, condition func() bool) bool {
	deadline := time.Now().Add(timeout)
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for !condition() {
		if time.Now().After(deadline) {
			return false
		}
		select {
		case <-d.ending:
			return condition()
		case <-ticker.C:
		}
	}
	return true
}
