package monit

import (
	"encoding/xml"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// version is the version of monit that the package replaces.
const version = "5.2.5"

// status is the document of /_status2?format=xml.
type status struct {
	XMLName     xml.Name        `xml:"monit"`
	ID          string          `xml:"id,attr"`
	Incarnation int64           `xml:"incarnation,attr"`
	Version     string          `xml:"version,attr"`
	Server      statusServer    `xml:"server"`
	Services    []statusService `xml:"services>service"`
	Groups      []statusGroup   `xml:"servicegroups>servicegroup"`
}

type statusServer struct {
	Uptime      int    `xml:"uptime"`
	Poll        int    `xml:"poll"`
	StartDelay  int    `xml:"startdelay"`
	Host        string `xml:"localhostname"`
	ControlFile string `xml:"controlfile"`
	Address     string `xml:"httpd>address"`
	Port        string `xml:"httpd>port"`
	SSL         int    `xml:"httpd>ssl"`
}

type statusService struct {
	Name          string         `xml:"name,attr"`
	Type          Type           `xml:"type"`
	Status        event          `xml:"status"`
	StatusHint    int            `xml:"status_hint"`
	StatusMessage string         `xml:"status_message,omitempty"`
	Monitor       monitoring     `xml:"monitor"`
	MonitorMode   int            `xml:"monitormode"`
	Pending       Action         `xml:"pendingaction"`
	Process       *statusProcess // fields of a running process
}

type statusProcess struct {
	PID      int         `xml:"pid"`
	Parent   int         `xml:"ppid"`
	Uptime   int         `xml:"uptime"`
	Children int         `xml:"children"`
	Memory   statusUsage `xml:"memory"`
	CPU      statusUsage `xml:"cpu"`
}

type statusUsage struct {
	Percent       string `xml:"percent"`
	PercentTotal  string `xml:"percenttotal"`
	Kilobyte      *int   `xml:"kilobyte"`
	KilobyteTotal *int   `xml:"kilobytetotal"`
}

type statusGroup struct {
	Name     string   `xml:"name,attr"`
	Services []string `xml:"service"`
}

// MarshalXML writes the fields of the process as fields of the service.
func (p *statusProcess) MarshalXML(e *xml.Encoder, _ xml.StartElement) error {
	for _, field := range []struct {
		name  string
		value any
	}{{"pid", p.PID}, {"ppid", p.Parent}, {"uptime", p.Uptime}, {"children", p.Children}, {"memory", p.Memory}, {"cpu", p.CPU}} {
		if err := e.EncodeElement(field.value, xml.StartElement{Name: xml.Name{Local: field.name}}); err != nil {
			return err
		}
	}
	return nil
}

// status returns the status of the daemon.
func (d *Daemon) status() status {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	host, port, _ := net.SplitHostPort(d.config.Address)
	document := status{ID: strconv.FormatInt(d.started.UnixNano(), 16), Incarnation: d.started.Unix(), Version: version,
		Server: statusServer{Uptime: int(time.Since(d.started).Seconds()), Poll: int(d.config.Interval.Seconds()), Host: hostname(),
			ControlFile: d.options.ControlFile, Address: host, Port: port}}
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
	result := statusService{Name: s.Name, Type: s.Type, Status: s.failed, StatusMessage: s.message, Monitor: s.monitor, Pending: s.pending}
	switch s.Mode {
	case "passive":
		result.MonitorMode = 1
	case "manual":
		result.MonitorMode = 2
	}
	if s.Type == Process && s.monitor == monitored && s.failed&nonexistent == 0 {
		u := s.usage
		result.Process = &statusProcess{PID: u.pid, Parent: u.parent, Uptime: int(u.uptime.Seconds()), Children: u.children,
			Memory: statusUsage{Percent: percent(u.memory), PercentTotal: percent(u.memoryTotal), Kilobyte: &u.memoryKiB,
				KilobyteTotal: &u.memoryTotalKiB},
			CPU: statusUsage{Percent: percent(u.cpu), PercentTotal: percent(u.cpuTotal)}}
	}
	return result
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
	for _, kind := range []event{nonexistent, execution, timedOut, connection, resource} {
		if bits&kind != 0 {
			names = append(names, eventNames[kind][0])
		}
	}
	return strings.Join(names, ", ")
}
