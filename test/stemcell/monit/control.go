package monit

import (
	"slices"
	"strings"
	"time"
)

// pollInterval is the interval at which monit checks whether a process started or exited.
const pollInterval = 100 * time.Millisecond

// control performs an action for a service, and for the services that it depends on or that depend on it.
func (d *Daemon) control(s *service, action Action) {
	switch action {
	case Start:
		d.startWithDependents(s)
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

// withLock calls change while the mutex is locked. change may modify the state that the HTTP interface reads.
func (d *Daemon) withLock(change func()) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	change()
}

func (d *Daemon) startWithDependents(s *service) {
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

// restart stops the service, then starts it. If the service does not stop, the next check retries.
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

// start starts the services that the service depends on, then the service, and waits for its process.
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
			d.recordOutcome(s, d.wait(s.Start.Timeout, func() bool { return s.pid() != 0 }), "started", "failed to start")
		}
	}
	d.withLock(s.enable)
}

// stop runs the stop program of a running process, even if the service is not monitored, and waits until the process exits. It
// returns false if the process does not exit.
func (d *Daemon) stop(s *service, visited map[*service]bool, unmonitor bool) bool {
	if visited[s] {
		return true
	}
	visited[s] = true
	stopped := true
	switch {
	case s.Type == Process && s.pid() == 0:
		d.recordRecovery(s, execution, "stopped") // a failed start must not make the stop fail
	case s.Stop != nil:
		d.log.printf("info", "'%s' stop: %s", s.Name, s.Stop.Arguments[0])
		d.spawn(s, s.Stop, "stop")
		if s.Type == Process {
			stopped = d.wait(s.Stop.Timeout, func() bool { return s.pid() == 0 })
			d.recordOutcome(s, stopped, "stopped", "failed to stop")
		}
	}
	if unmonitor {
		d.withLock(s.disable)
	}
	return stopped
}

// recordOutcome records the result of a start or a stop, unless monit is being stopped and did not wait for it.
func (d *Daemon) recordOutcome(s *service, succeeded bool, onSuccess, onFailure string) {
	switch {
	case succeeded:
		d.recordRecovery(s, execution, onSuccess)
	case !d.isStopping():
		d.recordFailure(s, execution, onFailure, Alert)
	}
}

func (d *Daemon) stopDependents(s *service, visited map[*service]bool, unmonitor bool) {
	for _, dependent := range d.dependents(s) {
		d.stop(dependent, visited, unmonitor)
	}
}

func (d *Daemon) startDependents(s *service, visited map[*service]bool) {
	for _, dependent := range slices.Backward(d.dependents(s)) {
		d.start(dependent, visited)
	}
}

// dependents returns the services that depend on s, directly or indirectly, in the order in which they must stop.
func (d *Daemon) dependents(s *service) []*service {
	var dependents []*service
	for _, candidate := range d.services {
		for _, name := range candidate.DependsOn {
			if name == s.Name {
				dependents = append(append(dependents, d.dependents(candidate)...), candidate)
			}
		}
	}
	return dependents
}

func (d *Daemon) prerequisites(s *service) []*service {
	var prerequisites []*service
	for _, name := range s.DependsOn {
		prerequisite := d.find(name)
		prerequisites = append(append(prerequisites, d.prerequisites(prerequisite)...), prerequisite)
	}
	return prerequisites
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

// wait waits until the condition is true. It returns false after the timeout, or if monit is being stopped.
func (d *Daemon) wait(timeout time.Duration, condition func() bool) bool {
	deadline := time.Now().Add(timeout)
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for !condition() {
		if time.Now().After(deadline) {
			return false
		}
		select {
		case <-d.stopping:
			return condition()
		case <-ticker.C:
		}
	}
	return true
}
