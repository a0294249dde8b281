package monit

import "time"

// Config is the configuration in a control file and in the files that it includes.
type Config struct {
	// Interval is the time between two cycles of checks ("set daemon").
	Interval time.Duration
	LogFile  string
	// Address is the host and port of the HTTP interface. It is empty if the interface is disabled.
	Address string
	// Users are the users of the HTTP interface and their passwords.
	Users  map[string]string
	Mail   Mail
	Checks []*Check
}

// Mail configures how alerts are sent.
type Mail struct {
	Server     string // host:port; empty disables mails
	Recipients []string
	// From, Subject and Message are templates with $SERVICE, $EVENT, $ACTION, $DATE, $HOST and $DESCRIPTION.
	From, Subject, Message string
}

// Check is a service: how it is checked, started and stopped.
type Check struct {
	Type  Type
	Name  string
	Group []string
	// The process is identified by PidFile, the file with its ID, or by Matching, a pattern of its command line.
	PidFile, Matching    string
	Start, Stop, Restart *Program
	DependsOn            []string
	Mode                 string   // active, passive or manual
	unsupported          []string // if statements
}

// Type is the number of a kind of service in monit's status.
type Type int

// Kinds of services. Only processes are checked.
const (
	Filesystem Type = iota
	Directory
	File
	Process
	Host
	System
	Fifo
)

var typeNames = map[string]Type{
	"device": Filesystem, "filesystem": Filesystem, "directory": Directory, "file": File, "process": Process,
	"host": Host, "system": System, "fifo": Fifo,
}

// Program is a command of a service.
type Program struct {
	Arguments []string
	UID, GID  string // names or numbers; if empty, the program has monit's
	// Timeout is the time to wait for the process to run after a start, or to exit after a stop.
	Timeout time.Duration
}

// Action is an action of monit for a service. Its number is the "pendingaction" of the status.
type Action int

// Actions.
const (
	Ignore Action = iota
	Alert
	Restart
	Stop
	Exec
	Unmonitor
	Start
	Monitor
)

var actionNames = []string{"ignore", "alert", "restart", "stop", "exec", "unmonitor", "start", "monitor"}

func (a Action) String() string { return actionNames[a] }

func parseAction(name string) (Action, bool) {
	for action, known := range actionNames {
		if known == name && Action(action) != Ignore {
			return Action(action), true
		}
	}
	return Ignore, false
}
