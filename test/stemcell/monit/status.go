package monit

import (
	"encoding/xml"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// version is the version of monit that the package replaces.
const version = "5.2.5"

// status is the document of /_status2?format=xml, as far as the agent and `monit summary` read it.
type status struct {
	XMLName     xml.Name        `xml:"monit"`
	Incarnation int64           `xml:"incarnation,attr"`
	Version     string          `xml:"version,attr"`
	Uptime      int             `xml:"server>uptime"`
	Services    []statusService `xml:"services>service"`
	Groups      []statusGroup   `xml:"servicegroups>servicegroup"`
}

type statusService struct {
	Name          string     `xml:"name,attr"`
	Type          Type       `xml:"type"`
	Status        event      `xml:"status"`
	StatusMessage string     `xml:"status_message,omitempty"`
	Monitor       monitoring `xml:"monitor"`
	Pending       Action     `xml:"pendingaction"`
	Uptime        int        `xml:"uptime"`
	Memory        string     `xml:"memory>percenttotal"`
	MemoryKiB     int        `xml:"memory>kilobytetotal"`
	CPU           string     `xml:"cpu>percenttotal"`
}

type statusGroup struct {
	Name     string   `xml:"name,attr"`
	Services []string `xml:"service"`
}

// status returns the status of the daemon.
func (d *Daemon) status() status {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	document := status{Incarnation: d.started.Unix(), Version: version, Uptime: int(time.Since(d.started).Seconds())}
	groups := map[string]int{}
	for _, s := range d.services {
		document.Services = append(document.Services, s.status())
		for _, group := range s.Group {
			if _, known := groups[group]; !known {
				groups[group] = len(document.Groups)
				document.Groups = append(document.Groups, statusGroup{Name: group})
			}
			members := &document.Groups[groups[group]]
			members.Services = append(members.Services, s.Name)
		}
	}
	return document
}

func (s *service) status() statusService {
	return statusService{Name: s.Name, Type: s.Type, Status: s.failed, StatusMessage: s.message, Monitor: s.monitor, Pending: s.pending,
		Uptime: int(s.usage.uptime.Seconds()), Memory: percent(s.usage.memory), MemoryKiB: s.usage.memoryKiB, CPU: percent(s.usage.cpu)}
}

func percent(share float64) string { return strconv.FormatFloat(share, 'f', 1, 64) }

// summary returns the state of the service as shown by `monit summary`.
func (s statusService) summary() string {
	summary := "running"
	switch {
	case s.Monitor == notMonitored:
		summary = "not monitored"
	case s.Status != 0:
		summary = describeFailures(s.Status)
	case s.Monitor == initializing:
		summary = "initializing"
	}
	if s.Pending != Ignore {
		summary += fmt.Sprintf(" - %s pending", s.Pending)
	}
	return summary
}

func describeFailures(bits event) string {
	var names []string
	for _, kind := range []event{nonexistent, execution} {
		if bits&kind != 0 {
			names = append(names, eventNames[kind][0])
		}
	}
	return strings.Join(names, ", ")
}
