package monit

import "time"

// monitoring states whether a service is checked. Its number is the "monitor" of monit's status.
type monitoring int

const (
	notMonitored monitoring = iota
	monitored
	initializing // not checked yet
)

// service is a Check with its state.
type service struct {
	*Check
	monitor monitoring
	pending Action
	failed  event // bits of the current failures
	message string
	usage   usage
}

// usage is the usage of the process and its descendants in the last cycle.
type usage struct {
	pid         int
	uptime      time.Duration
	memoryKiB   int
	memory, cpu float64 // percent of the VM's memory and of all processors
	ticks       uint64
	taken       time.Time
}

func newServices(config *Config, previous state) []*service {
	var services []*service
	for _, check := range config.Checks {
		s := &service{Check: check, monitor: initializing}
		if check.Mode == "manual" || previous.Unmonitored[check.Name] {
			s.monitor = notMonitored
		}
		services = append(services, s)
	}
	return services
}

func (s *service) enable() {
	if s.monitor == notMonitored {
		s.monitor = initializing
	}
}

func (s *service) disable() { s.monitor, s.usage = notMonitored, usage{} }

// updateUsage reads the usage from a table of all processes.
func (s *service) updateUsage(pid int, table processTable, memoryKiB, processors int) {
	now := usage{pid: pid, uptime: table.uptime(pid), taken: table.taken}
	now.ticks, now.memoryKiB = table.total(pid)
	if memoryKiB > 0 {
		now.memory = 100 * float64(now.memoryKiB) / float64(memoryKiB)
	}
	// The ticks decrease when a child exits.
	if previous := s.usage; previous.pid == pid && now.taken.After(previous.taken) && now.ticks > previous.ticks {
		now.cpu = 100 * float64(now.ticks-previous.ticks) / (now.taken.Sub(previous.taken).Seconds() * ticksPerSecond * float64(processors))
	}
	s.usage = now
}
