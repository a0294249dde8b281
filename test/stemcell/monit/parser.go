package monit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The numbers that monit has when a control file does not say.
const (
	defaultProgramTimeout = 30 * time.Second
	defaultMailTimeout    = 5 * time.Second
)

// ParseFile reads a control file and all that it includes.
func ParseFile(path string) (*Config, error) {
	config := &Config{Users: map[string]string{}, Interval: time.Minute, Mail: Mail{
		From: "monit@$HOST", Subject: "monit alert -- $EVENT $SERVICE", Timeout: defaultMailTimeout,
		Message: "$EVENT Service $SERVICE\n\n\tDate: $DATE\n\tAction: $ACTION\n\tHost: $HOST\n\tDescription: $DESCRIPTION\n",
	}}
	if err := config.include(path); err != nil {
		return nil, err
	}
	if err := config.validate(); err != nil {
		return nil, err
	}
	return config, nil
}

func (c *Config) include(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the control file: %w", err)
	}
	tokens, err := lex(string(content))
	if err == nil {
		err = (&parser{config: c, tokens: tokens}).parse()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func (c *Config) validate() error {
	known := map[string]*Check{}
	for _, check := range c.Checks {
		if known[check.Name] != nil {
			return fmt.Errorf("service name conflict, %s already defined", check.Name)
		}
		known[check.Name] = check
	}
	for _, check := range c.Checks {
		if err := check.validate(known, nil); err != nil {
			return err
		}
	}
	return nil
}

// validate follows what the service depends on; on the way there it came past these services.
func (c *Check) validate(known map[string]*Check, past []string) error {
	if slices.Contains(past, c.Name) {
		return fmt.Errorf("service %s depends on itself", c.Name)
	}
	for _, name := range c.DependsOn {
		other := known[name]
		if other == nil {
			return fmt.Errorf("service %s depends on %s, which is not defined", c.Name, name)
		}
		if err := other.validate(known, append(past, c.Name)); err != nil {
			return err
		}
	}
	return nil
}

type parser struct {
	config *Config
	tokens []token
}

var errEnd = errors.New("the file ends in the middle of a statement")

func (p *parser) done() bool { return len(p.tokens) == 0 }

// next takes the next token.
func (p *parser) next() (token, error) {
	if p.done() {
		return token{}, errEnd
	}
	first := p.tokens[0]
	p.tokens = p.tokens[1:]
	return first, nil
}

// skip takes the next token when it is one of these words.
func (p *parser) skip(words ...string) bool {
	if p.done() || !p.tokens[0].is(words...) {
		return false
	}
	p.tokens = p.tokens[1:]
	return true
}

// skipAll takes all of these words that come next.
func (p *parser) skipAll(words ...string) {
	for p.skip(words...) {
		continue
	}
}

func (p *parser) text() (string, error) {
	t, err := p.next()
	return t.text, err
}

func (p *parser) number() (int, error) {
	t, err := p.next()
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(t.text)
	if err != nil {
		return 0, fmt.Errorf("line %d: %q is no number", t.line, t.text)
	}
	return n, nil
}

// statement takes the tokens up to the next one that begins a statement at the file's outermost level.
func (p *parser) statement() []token {
	end := 0
	for end < len(p.tokens) && !p.tokens[end].is("set", "include", "check") {
		end++
	}
	taken := p.tokens[:end]
	p.tokens = p.tokens[end:]
	return taken
}

func (p *parser) parse() error {
	for !p.done() {
		begin, _ := p.next()
		var err error
		switch {
		case begin.is("set"):
			err = (&parser{config: p.config, tokens: p.statement()}).set()
		case begin.is("include"):
			err = p.includes()
		case begin.is("check"):
			err = (&parser{config: p.config, tokens: p.statement()}).check()
		default:
			err = fmt.Errorf("syntax error '%s'", begin.text)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", begin.line, err)
		}
	}
	return nil
}

func (p *parser) includes() error {
	pattern, err := p.text()
	if err != nil {
		return err
	}
	files, err := filepath.Glob(pattern)
	if err != nil {
		return fmt.Errorf("include %s: %w", pattern, err)
	}
	for _, file := range files {
		if err := p.config.include(file); err != nil {
			return err
		}
	}
	return nil
}

// set reads a set statement. Those that only matter to parts that are not here are passed over.
func (p *parser) set() error {
	what, err := p.next()
	if err != nil {
		return err
	}
	switch {
	case what.is("daemon"):
		seconds, err := p.number()
		p.config.Interval = time.Duration(seconds) * time.Second
		return err
	case what.is("logfile"):
		p.config.LogFile, err = p.text()
	case what.is("httpd"):
		return p.httpd()
	case what.is("alert"):
		var recipient string
		recipient, err = p.text()
		p.config.Mail.Recipients = append(p.config.Mail.Recipients, recipient)
	case what.is("mailserver"):
		return p.mailServer()
	case what.is("mail-format"):
		return p.mailFormat()
	}
	return err
}

func (p *parser) httpd() error {
	host, port := "", 0
	for !p.done() {
		option, err := p.next()
		if err != nil {
			return err
		}
		switch {
		case option.is("port"):
			port, err = p.number()
		case option.is("address"):
			host, err = p.text()
		case option.is("allow"):
			err = p.allow()
		}
		if err != nil {
			return err
		}
	}
	p.config.Address = fmt.Sprintf("%s:%d", host, port)
	return nil
}

// allow reads who may use the HTTP interface: USER:PASSWORD, or a file with one on each line. An address is
// passed over: the interface listens on loopback alone.
func (p *parser) allow() error {
	who, err := p.text()
	if err != nil {
		return err
	}
	if who != "cleartext" {
		p.allowUser(who)
		return nil
	}
	path, err := p.text()
	if err != nil {
		return err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading who may use the HTTP interface: %w", err)
	}
	for line := range strings.Lines(string(content)) {
		p.allowUser(strings.TrimSpace(line))
	}
	return nil
}

func (p *parser) allowUser(line string) {
	if user, password, ok := strings.Cut(line, ":"); ok {
		p.config.Users[user] = password
	}
}

func (p *parser) mailServer() error {
	host, err := p.text()
	if err != nil {
		return err
	}
	port := 25
	for !p.done() {
		switch option, _ := p.next(); {
		case option.is("port"):
			port, err = p.number()
		case option.is("timeout"):
			var seconds int
			seconds, err = p.number()
			p.config.Mail.Timeout = time.Duration(seconds) * time.Second
		}
		if err != nil {
			return err
		}
	}
	p.config.Mail.Server = fmt.Sprintf("%s:%d", host, port)
	return nil
}

// mailFormat reads "from: …", "subject: …" and "message: …"; the message goes on to the end.
func (p *parser) mailFormat() error {
	format, err := p.text()
	if err != nil {
		return err
	}
	mail := &p.config.Mail
	for lines := strings.Split(format, "\n"); len(lines) > 0; lines = lines[1:] {
		key, value, _ := strings.Cut(strings.TrimSpace(lines[0]), ":")
		switch value = strings.TrimSpace(value); key {
		case "from":
			mail.From = value
		case "subject":
			mail.Subject = value
		case "message":
			mail.Message = value
			for _, line := range lines[1:] {
				mail.Message += "\n" + strings.TrimSpace(line)
			}
			return nil
		}
	}
	return nil
}
