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

	// For rules about restarts: the number of restarts, and of cycles since the first restart.
	restarts, cycles int
	ruleHistory      map[*Rule]uint64 // whether a rule was met in the last cycles, the latest in bit 0
	cycleCount       int              // for Every
	usage            usage
}

// usage is the usage of the process in the last cycle.
type usage struct {
	pid, parent, children     int
	uptime                    time.Duration
	memoryKiB, memoryTotalKiB int
	memory, memoryTotal       float64 // percent of the VM's memory
	cpu, cpuTotal             float64 // percent of all processors

	ticks, totalTicks uint64
	taken             time.Time
}

func newServices(config *Config, previous state) []*service {
	var services []*service
	for _, check := range config.Checks {
		s := &service{Check: check, monitor: initializing, ruleHistory: map[*Rule]uint64{}}
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

func (s *service) disable() {
	s.monitor, s.restarts, s.cycles, s.usage = notMonitored, 0, 0, usage{}
}

// updateUsage reads the process's usage from a table of all processes.
func (s *service) updateUsage(pid int, table processTable, memoryKiB, processors int) {
	info := table.processes[pid]
	now := usage{pid: pid, parent: info.parent, uptime: table.uptime(pid), memoryKiB: info.memoryKiB, ticks: info.ticks, taken: table.taken}
	now.totalTicks, now.memoryTotalKiB, now.children = table.total(pid)
	if memoryKiB > 0 {
		now.memory = 100 * float64(now.memoryKiB) / float64(memoryKiB)
		now.memoryTotal = 100 * float64(now.memoryTotalKiB) / float64(memoryKiB)
	}
	if previous := s.usage; previous.pid == pid && now.taken.After(previous.taken) {
		available := now.taken.Sub(previous.taken).Seconds() * ticksPerSecond * float64(processors)
		now.cpu = 100 * float64(now.ticks-previous.ticks) / available
		if now.totalTicks > previous.totalTicks { // it decreases when a child exits
			now.cpuTotal = 100 * float64(now.totalTicks-previous.totalTicks) / available
		}
	}
	s.usage = now
}
