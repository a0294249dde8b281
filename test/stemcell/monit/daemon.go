package monit

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"time"
)

// Options are where a daemon's files are.
type Options struct {
	ControlFile string
	// StateFile remembers which services are not monitored, PIDFile the daemon's own process.
	StateFile, PIDFile string
}

// Daemon supervises the services of a control file.
type Daemon struct {
	options Options
	log     *logger
	// wake lets the daemon look at its services at once; reload lets it read its control file anew.
	wake, reload chan struct{}
	// ending is closed when the daemon or its configuration comes to an end.
	ending <-chan struct{}

	mutex    sync.Mutex // of all that follows, which only the daemon's own loop changes
	config   *Config
	services []*service
	started  time.Time
}

// NewDaemon reads the control file. The services that were not monitored by the last daemon are not by this.
func NewDaemon(options Options) (*Daemon, error) {
	d := &Daemon{options: options, wake: make(chan struct{}, 1), reload: make(chan struct{}, 1), ending: make(chan struct{})}
	if err := d.load(); err != nil {
		return nil, err
	}
	return d, nil
}

func (d *Daemon) load() error {
	config, err := ParseFile(d.options.ControlFile)
	if err != nil {
		return err
	}
	log, err := openLog(config.LogFile)
	if err != nil {
		return err
	}
	services := newServices(config, readState(d.options.StateFile))
	d.withLock(func() { d.config, d.services, d.started, d.log = config, services, time.Now(), log })
	for _, s := range services {
		d.logUntested(s)
	}
	return nil
}

// logUntested says what the control file asks for and is not carried out.
func (d *Daemon) logUntested(s *service) {
	if s.Type != Process {
		d.log.printf("warning", "'%s' is no process: it is not checked", s.Name)
	}
	for _, rule := range s.Rules {
		if rule.Event == 0 || rule.Test == nil && rule.Event != timedOut && rule.Event != nonexistent {
			d.log.printf("warning", "'%s' if %s: not tested", s.Name, rule.text)
		}
	}
}

// Wake lets the daemon look at its services at once.
func (d *Daemon) Wake() { notify(d.wake) }

// Reload lets the daemon read its control file anew. When that has errors, Run returns them.
func (d *Daemon) Reload() { notify(d.reload) }

func notify(channel chan struct{}) {
	select {
	case channel <- struct{}{}:
	default: // it is going to look already
	}
}

// Run supervises the services until the context ends. It leaves them running.
func (d *Daemon) Run(ctx context.Context) error {
	d.ending = ctx.Done()
	defer removePIDFile(d.options.PIDFile)
	if err := writePIDFile(d.options.PIDFile); err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := d.serve(ctx); err != nil {
			return err
		}
	}
	return nil
}

// serve supervises with one reading of the control file.
func (d *Daemon) serve(ctx context.Context) error {
	listener, err := listen(ctx, d.config.Address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: d.handler(), ReadHeaderTimeout: 10 * time.Second}
	if listener != nil {
		go func() { _ = server.Serve(listener) }()
	}
	defer server.Close()
	d.log.printf("info", "monit daemon started")
	d.mail(hostname(), eventNames[instance][0], Alert.String(), "Monit started")
	for {
		d.round()
		if err := d.saveState(); err != nil {
			d.log.printf("error", "%v", err)
		}
		select {
		case <-ctx.Done():
			d.log.printf("info", "monit daemon killed")
			return nil
		case <-d.reload:
			d.log.printf("info", "Reinitializing monit -- Control file '%s'", d.options.ControlFile)
			return d.load()
		case <-d.wake:
		case <-time.After(d.config.Interval):
		}
	}
}

// isEnding tells whether the daemon is to end.
func (d *Daemon) isEnding() bool {
	select {
	case <-d.ending:
		return true
	default:
		return false
	}
}

// round does what was asked for, then checks the services that are monitored.
func (d *Daemon) round() {
	for _, s := range d.services {
		d.applyPending(s)
	}
	table, memory := readProcesses(), memoryTotalKiB()
	for _, s := range d.services {
		if d.isEnding() {
			return
		}
		if d.applyPending(s) || s.monitor == notMonitored || d.checkRestartLimit(s) {
			continue
		}
		s.round++
		if s.Every > 1 && s.round%s.Every != 0 {
			continue
		}
		d.check(s, table, memory)
	}
}

// applyPending does what the HTTP interface was asked to do with a service, and returns whether that was anything.
func (d *Daemon) applyPending(s *service) bool {
	d.mutex.Lock()
	action := s.pending
	d.mutex.Unlock()
	if action == Ignore || d.isEnding() {
		return false
	}
	d.control(s, action)
	if err := d.saveState(); err != nil {
		d.log.printf("error", "%v", err)
	}
	d.mail(s.Name, eventNames[actionDone][0], action.String(), fmt.Sprintf("%s action done", action))
	d.withLock(func() {
		if s.pending == action { // else something else was asked meanwhile
			s.pending = Ignore
		}
	})
	return true
}

// checkRestartLimit counts the cycles since the first restart, and does what is to be done with a service that was
// restarted too often. It returns true when it is then no longer monitored.
func (d *Daemon) checkRestartLimit(s *service) bool {
	if s.restarts > 0 {
		s.cycles++
	}
	longest := 0
	for _, rule := range s.Rules {
		if rule.Event != timedOut {
			continue
		}
		longest = max(longest, rule.Cycles)
		if s.restarts >= rule.Times && s.cycles <= rule.Cycles {
			d.recordFailure(s, timedOut, fmt.Sprintf("service restarted %d times within %d cycles(s) - %s", s.restarts, s.cycles, rule.Action),
				rule.Action, rule.Program)
		}
	}
	if s.cycles > longest {
		s.restarts, s.cycles = 0, 0
	}
	return s.monitor == notMonitored
}

// check looks whether the service's process runs, and asks of it what the control file says.
func (d *Daemon) check(s *service, table processTable, memoryKiB int) {
	if s.Type != Process {
		d.withLock(func() { s.monitor = monitored })
		return
	}
	pid := s.pid()
	if pid == 0 {
		action, program := Restart, (*Program)(nil)
		for _, rule := range s.Rules {
			if rule.Event == nonexistent {
				action, program = rule.Action, rule.Program
			}
		}
		d.recordFailure(s, nonexistent, "process is not running", action, program)
		return
	}
	d.recordRecovery(s, nonexistent, fmt.Sprintf("process is running with pid %d", pid))
	if _, ok := table.processes[pid]; !ok { // it came after the table
		table = readProcesses()
	}
	d.withLock(func() {
		s.updateUsage(pid, table, memoryKiB, runtime.NumCPU())
		s.monitor = monitored
	})
	for _, rule := range s.Rules {
		if rule.Test != nil && s.monitor != notMonitored {
			d.evaluateRule(s, rule)
		}
	}
}

// evaluateRule tries a rule's test, and does the rule's action when it was met in as many of the last cycles as the
// rule says.
func (d *Daemon) evaluateRule(s *service, rule *Rule) {
	failure := rule.Test.failure(s)
	s.ruleHistory[rule] <<= 1
	if failure != "" {
		s.ruleHistory[rule] |= 1
	}
	times := 0
	for cycle := range rule.Cycles {
		times += int(s.ruleHistory[rule] >> cycle & 1)
	}
	switch {
	case times >= rule.Times:
		d.recordFailure(s, rule.Event, failure, rule.Action, rule.Program)
	case times == 0:
		d.recordRecovery(s, rule.Event, rule.text+": no longer")
	}
}
