package monit

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"time"
)

// Options are the paths of a daemon's files.
type Options struct {
	ControlFile string
	// StateFile stores which services are not monitored. PIDFile stores the daemon's process ID.
	StateFile, PIDFile string
}

// Daemon supervises the services of a control file.
type Daemon struct {
	options Options
	log     *logger
	// wake starts a cycle immediately. reload makes the daemon read its control file again.
	wake, reload chan struct{}
	// stopping is closed when the daemon is being stopped.
	stopping <-chan struct{}

	mutex    sync.Mutex // guards the following fields; only the daemon's loop changes them
	config   *Config
	services []*service
	started  time.Time
}

// NewDaemon reads the control file. Services that the previous daemon did not monitor are not monitored.
func NewDaemon(options Options) (*Daemon, error) {
	d := &Daemon{options: options, wake: make(chan struct{}, 1), reload: make(chan struct{}, 1), stopping: make(chan struct{})}
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
		d.logUnsupported(s)
	}
	return nil
}

// logUnsupported logs the parts of the control file that are not supported.
func (d *Daemon) logUnsupported(s *service) {
	if s.Type != Process {
		d.log.printf("warning", "'%s' is not checked, because it is not a process", s.Name)
	}
	for _, statement := range s.unsupported {
		d.log.printf("warning", "'%s' %s: not supported", s.Name, statement)
	}
}

// Wake makes the daemon start a cycle immediately.
func (d *Daemon) Wake() { notify(d.wake) }

// Reload makes the daemon read its control file again. Run returns errors of the file.
func (d *Daemon) Reload() { notify(d.reload) }

func notify(channel chan struct{}) {
	select {
	case channel <- struct{}{}:
	default: // a notification is pending
	}
}

// Run supervises the services until the context is canceled. It leaves them running.
func (d *Daemon) Run(ctx context.Context) error {
	d.stopping = ctx.Done()
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

// serve supervises the services until the context is canceled or the control file is read again.
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
		d.runCycle()
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

// isStopping reports whether the daemon is being stopped.
func (d *Daemon) isStopping() bool {
	select {
	case <-d.stopping:
		return true
	default:
		return false
	}
}

// runCycle performs pending actions, then checks the monitored services.
func (d *Daemon) runCycle() {
	for _, s := range d.services {
		d.applyPending(s)
	}
	table, memory := readProcesses(), memoryTotalKiB()
	for _, s := range d.services {
		if d.isStopping() {
			return
		}
		if !d.applyPending(s) && s.monitor != notMonitored {
			d.check(s, table, memory)
		}
	}
}

// applyPending performs the queued action for a service, and reports whether there was one.
func (d *Daemon) applyPending(s *service) bool {
	d.mutex.Lock()
	action := s.pending
	d.mutex.Unlock()
	if action == Ignore || d.isStopping() {
		return false
	}
	d.control(s, action)
	if err := d.saveState(); err != nil {
		d.log.printf("error", "%v", err)
	}
	d.mail(s.Name, eventNames[actionDone][0], action.String(), fmt.Sprintf("%s action done", action))
	d.withLock(func() {
		if s.pending == action { // unless another action was requested in the meantime
			s.pending = Ignore
		}
	})
	return true
}

// check checks whether the service's process runs, and restarts it otherwise.
func (d *Daemon) check(s *service, table processTable, memoryKiB int) {
	if s.Type != Process {
		d.withLock(func() { s.monitor = monitored })
		return
	}
	pid := s.pid()
	if pid == 0 {
		d.recordFailure(s, nonexistent, "process is not running", Restart)
		return
	}
	d.recordRecovery(s, nonexistent, fmt.Sprintf("process is running with pid %d", pid))
	if _, ok := table.processes[pid]; !ok { // the process started after the table was read
		table = readProcesses()
	}
	d.withLock(func() {
		s.updateUsage(pid, table, memoryKiB, runtime.NumCPU())
		s.monitor = monitored
	})
}
