package monit

import (
	"fmt"
	"net"
	"time"
)

// condition is the condition of a rule for a running process. match returns a description if the condition is met, and "" otherwise.
type condition interface {
	match(s *service) string
}

// connectionTimeout is monit's default. Timeouts in control files are ignored.
const connectionTimeout = 5 * time.Second

// connectionCondition is met if a connection cannot be opened. Protocols are not supported.
type connectionCondition struct {
	network, host, port, path string
}

func (c connectionCondition) match(*service) string {
	address := c.path
	if c.network == "tcp" {
		address = net.JoinHostPort(c.host, c.port)
	}
	conn, err := net.DialTimeout(c.network, address, connectionTimeout)
	if err != nil {
		return fmt.Sprintf("failed, cannot open a connection to %s: %v", address, err)
	}
	_ = conn.Close()
	return ""
}

// resourceCondition compares the usage of a process with a limit: a percentage, KiB, or a number of child processes.
type resourceCondition struct {
	name             string
	limit            float64
	percent, greater bool
}

func (r resourceCondition) match(s *service) string {
	var used float64
	switch total := r.name == "totalmem" || r.name == "totalmemory"; {
	case r.name == "cpu":
		used = s.usage.cpu
	case r.name == "totalcpu":
		used = s.usage.cpuTotal
	case r.name == "children":
		used = float64(s.usage.children)
	case total && r.percent:
		used = s.usage.memoryTotal
	case total:
		used = float64(s.usage.memoryTotalKiB)
	case r.percent:
		used = s.usage.memory
	default:
		used = float64(s.usage.memoryKiB)
	}
	if r.greater && used > r.limit || !r.greater && used < r.limit {
		return fmt.Sprintf("%s of %.1f matches resource limit %.1f", r.name, used, r.limit)
	}
	return ""
}
