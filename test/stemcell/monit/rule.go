package monit

import (
	"fmt"
	"net"
	"time"
)

// test is what a rule asks of a running process. It returns what is wrong, or nothing.
type test interface {
	failure(s *service) string
}

// connectionTimeout is monit's own, and no control file's: what is said there is read, and not used.
const connectionTimeout = 5 * time.Second

// connectionTest connects. Protocols are not spoken.
type connectionTest struct {
	network, host, port, path string
}

func (c connectionTest) failure(*service) string {
	address := c.path
	if c.network == "tcp" {
		address = net.JoinHostPort(c.host, c.port)
	}
	connection, err := net.DialTimeout(c.network, address, connectionTimeout)
	if err != nil {
		return fmt.Sprintf("failed, cannot open a connection to %s: %v", address, err)
	}
	_ = connection.Close()
	return ""
}

// resourceTest compares what the process uses with a limit, in percent or in KiB, or a number.
type resourceTest struct {
	name             string
	limit            float64
	percent, greater bool
}

func (r resourceTest) failure(s *service) string {
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
