package monit

import "time"

// Config is what a control file and those that it includes say.
type Config struct {
	// Interval is the time between two rounds of checks ("set daemon").
	Interval time.Duration
	LogFile  string
	// Address is the host and port of the HTTP interface; empty without one.
	Address string
	// Users are who may use the HTTP interface, and their passwords.
	Users  map[string]string
	Mail   Mail
	Checks []*Check
}

// Mail is how alerts are sent.
type Mail struct {
	Server     string // host:port; empty for no mails
	Timeout    time.Duration
	Recipients []string
	// From, Subject and Message are templates with $SERVICE, $EVENT, $ACTION, $DATE, $HOST and $DESCRIPTION.
	From, Subject, Message string
}

// Check is a service: what is checked, and how it is started and stopped.
type Check struct {
	Type  Type
	Name  string
	Group []string
	// PidFile is where a process writes its number; Matching is a pattern of its command line instead.
	PidFile, Matching    string
	Start, Stop, Restart *Program
	DependsOn            []string
	Mode                 string // active, passive or manual
	Every                int    // rounds between two checks; 1 for all
	Rules                []*Rule
}

// Type is the number that monit's status gives a kind of service.
type Type int

// The kinds of services. Only processes are checked.
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

// Program is a command that is run.
type Program struct {
	Arguments []string
	UID, GID  string // names or numbers; empty for monit's own
	// Timeout is how long the process may take to appear after a start, or to vanish after a stop.
	Timeout time.Duration
}

// Action is what monit does with a service; the numbers are those of "pendingaction" in its status.
type Action int

// The actions.
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
	if name == "timeout" {
		return Unmonitor, true
	}
	for action, known := range actionNames {
		if known == name && Action(action) != Ignore {
			return Action(action), true
		}
	}
	return Ignore, false
}

// Rule is an if statement.
type Rule struct {
	Event event
	// Test of the service, for rules about its process's resources or connections.
	Test test
	// Times out of Cycles the test has to be met, or for rules about restarts the service restarted.
	Times, Cycles int
	Action        Action
	Program       *Program // for Exec
	text          string
}
