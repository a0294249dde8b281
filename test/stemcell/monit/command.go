package monit

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Command runs `monit ARGUMENTS…` and writes its output.
func Command(arguments []string, out io.Writer) error {
	c := &command{options: DefaultOptions(), out: out}
	words, err := c.parseFlags(arguments)
	if err != nil {
		return err
	}
	if len(words) == 0 {
		return c.daemon()
	}
	return c.run(words[0], words[1:])
}

type command struct {
	options Options
	group   string
	out     io.Writer
}

// parseFlags parses flags at any position, and returns the other arguments. For example, the agent runs `monit stop -g vcap`.
func (c *command) parseFlags(arguments []string) (words []string, err error) {
	values := map[string]*string{"-c": &c.options.ControlFile, "-g": &c.group, "-s": &c.options.StateFile, "-p": &c.options.PIDFile}
	for i := 0; i < len(arguments); i++ {
		argument := arguments[i]
		value, ok := values[argument]
		switch {
		case ok && i+1 == len(arguments):
			return nil, fmt.Errorf("option requires an argument -- '%s'", argument)
		case ok:
			i++
			*value = arguments[i]
		case argument == "-I": // in the foreground, as always
		case strings.HasPrefix(argument, "-"):
			return nil, fmt.Errorf("invalid option -- '%s'", argument)
		default:
			words = append(words, argument)
		}
	}
	return words, nil
}

// daemon supervises services until SIGTERM or SIGINT. If a daemon is already running, it wakes that daemon instead.
func (c *command) daemon() error {
	if pid := daemonPID(c.options.PIDFile); pid != 0 {
		fmt.Fprintf(c.out, "Monit daemon with PID %d awakened\n", pid)
		return syscall.Kill(pid, syscall.SIGUSR1)
	}
	d, err := NewDaemon(c.options)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGUSR1)
	go func() {
		for received := range signals {
			if received == syscall.SIGHUP {
				d.Reload()
			} else {
				d.Wake()
			}
		}
	}()
	return d.Run(ctx)
}

func (c *command) run(verb string, names []string) error {
	switch verb {
	case "start", "stop", "restart", "monitor", "unmonitor":
		return c.control(verb, names)
	case "summary":
		return c.summary()
	case "reload":
		return c.signal(syscall.SIGHUP)
	case "quit":
		return c.signal(syscall.SIGTERM)
	}
	return fmt.Errorf("invalid argument -- %s", verb)
}

var errNoDaemon = errors.New("the monit daemon is not running")

func (c *command) signal(number syscall.Signal) error {
	pid := daemonPID(c.options.PIDFile)
	if pid == 0 {
		return errNoDaemon
	}
	return syscall.Kill(pid, number)
}

// control requests an action for the services of the group, all services, or one service. A group without services is not an error.
func (c *command) control(verb string, names []string) error {
	config, err := ParseFile(c.options.ControlFile)
	if err != nil {
		return err
	}
	if c.group == "" && len(names) == 0 {
		return fmt.Errorf("please specify a service name or 'all' after %s", verb)
	}
	var selected []string
	for _, check := range config.Checks {
		inGroup := slices.ContainsFunc(check.Group, func(group string) bool { return strings.EqualFold(group, c.group) })
		if inGroup || c.group == "" && names[0] == "all" {
			selected = append(selected, check.Name)
		}
	}
	if c.group == "" && names[0] != "all" {
		selected = names[:1]
	}
	for _, name := range selected {
		if _, err := c.request(config, http.MethodPost, name, url.Values{"action": {verb}}); err != nil {
			return fmt.Errorf("cannot %s %s: %w", verb, name, err)
		}
	}
	return nil
}

func (c *command) summary() error {
	config, err := ParseFile(c.options.ControlFile)
	if err != nil {
		return err
	}
	content, err := c.request(config, http.MethodGet, "_status2", url.Values{"format": {"xml"}})
	if err != nil {
		return err
	}
	var document status
	if _, body, ok := strings.Cut(string(content), "?>"); !ok || xml.Unmarshal([]byte(body), &document) != nil {
		return fmt.Errorf("cannot parse the daemon's status: %s", content)
	}
	fmt.Fprintf(c.out, "The Monit daemon %s uptime: %s \n\n", version, time.Duration(document.Uptime)*time.Second)
	for _, s := range document.Services {
		fmt.Fprintf(c.out, "%-35s %s\n", "Process '"+s.Name+"'", s.summary())
	}
	return nil
}

// request sends a request to the daemon, with the credentials of one of its users.
func (c *command) request(config *Config, method, path string, values url.Values) ([]byte, error) {
	if daemonPID(c.options.PIDFile) == 0 {
		return nil, errNoDaemon
	}
	target := "http://" + config.Address + "/" + path
	request, err := http.NewRequest(method, target, strings.NewReader(values.Encode()))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for user, password := range config.Users {
		request.SetBasicAuth(user, password)
		break
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to the monit daemon: %w", err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, strings.TrimSpace(string(content)))
	}
	return content, err
}
