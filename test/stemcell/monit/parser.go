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

const defaultProgramTimeout = 30 * time.Second // as in monit

// ParseFile reads a control file and the files that it includes.
func ParseFile(path string) (*Config, error) {
	config := &Config{Users: map[string]string{}, Interval: time.Minute, Mail: Mail{
		From: "monit@$HOST", Subject: "monit alert -- $EVENT $SERVICE",
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
		return fmt.Errorf("read the control file: %w", err)
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
	checks := map[string]*Check{}
	for _, check := range c.Checks {
		if checks[check.Name] != nil {
			return fmt.Errorf("service name conflict, %s already defined", check.Name)
		}
		checks[check.Name] = check
	}
	for _, check := range c.Checks {
		if err := check.validate(checks, nil); err != nil {
			return err
		}
	}
	return nil
}

// validate returns an error if a dependency of the service is not defined, or depends on the service. path contains the services that
// depend on this service.
func (c *Check) validate(checks map[string]*Check, path []string) error {
	if slices.Contains(path, c.Name) {
		return fmt.Errorf("service %s depends on itself", c.Name)
	}
	for _, name := range c.DependsOn {
		dependency := checks[name]
		if dependency == nil {
			return fmt.Errorf("service %s depends on %s, which is not defined", c.Name, name)
		}
		if err := dependency.validate(checks, append(path, c.Name)); err != nil {
			return err
		}
	}
	return nil
}

type parser struct {
	config *Config
	tokens []token
}

var errUnexpectedEnd = errors.New("unexpected end of file in a statement")

func (p *parser) done() bool { return len(p.tokens) == 0 }

// next consumes and returns the next token.
func (p *parser) next() (token, error) {
	if p.done() {
		return token{}, errUnexpectedEnd
	}
	t := p.tokens[0]
	p.tokens = p.tokens[1:]
	return t, nil
}

// skip consumes the next token if it is one of these words.
func (p *parser) skip(words ...string) bool {
	if p.done() || !p.tokens[0].is(words...) {
		return false
	}
	p.tokens = p.tokens[1:]
	return true
}

// skipAll consumes tokens while they are one of these words.
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
		return 0, fmt.Errorf("line %d: %q is not a number", t.line, t.text)
	}
	return n, nil
}

// statement consumes and returns the tokens before the next top-level statement.
func (p *parser) statement() []token {
	end := 0
	for end < len(p.tokens) && !p.tokens[end].is("set", "include", "check") {
		end++
	}
	tokens := p.tokens[:end]
	p.tokens = p.tokens[end:]
	return tokens
}

func (p *parser) parse() error {
	for !p.done() {
		keyword, _ := p.next()
		var err error
		switch {
		case keyword.is("set"):
			err = (&parser{config: p.config, tokens: p.statement()}).set()
		case keyword.is("include"):
			err = p.include()
		case keyword.is("check"):
			err = (&parser{config: p.config, tokens: p.statement()}).check()
		default:
			err = fmt.Errorf("syntax error '%s'", keyword.text)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", keyword.line, err)
		}
	}
	return nil
}

func (p *parser) include() error {
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

// set reads a set statement. It ignores statements about unsupported features.
func (p *parser) set() error {
	option, err := p.next()
	if err != nil {
		return err
	}
	switch {
	case option.is("daemon"):
		seconds, err := p.number()
		p.config.Interval = time.Duration(seconds) * time.Second
		return err
	case option.is("logfile"):
		p.config.LogFile, err = p.text()
	case option.is("httpd"):
		return p.httpd()
	case option.is("alert"):
		var recipient string
		recipient, err = p.text()
		p.config.Mail.Recipients = append(p.config.Mail.Recipients, recipient)
	case option.is("mailserver"):
		return p.mailServer()
	case option.is("mail-format"):
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

// allow reads the users of the HTTP interface: USER:PASSWORD, or a file with one user per line. It ignores addresses, because the
// interface listens on loopback only.
func (p *parser) allow() error {
	user, err := p.text()
	if err != nil {
		return err
	}
	if user != "cleartext" {
		p.allowUser(user)
		return nil
	}
	path, err := p.text()
	if err != nil {
		return err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the users of the HTTP interface: %w", err)
	}
	for line := range strings.Lines(string(content)) {
		p.allowUser(strings.TrimSpace(line))
	}
	return nil
}

func (p *parser) allowUser(line string) {
	if name, password, ok := strings.Cut(line, ":"); ok {
		p.config.Users[name] = password
	}
}

func (p *parser) mailServer() error {
	host, err := p.text()
	if err != nil {
		return err
	}
	port := 25
	for !p.done() {
		if option, _ := p.next(); option.is("port") {
			if port, err = p.number(); err != nil {
				return err
			}
		}
	}
	p.config.Mail.Server = fmt.Sprintf("%s:%d", host, port)
	return nil
}

// mailFormat reads "from: …", "subject: …" and "message: …". The message extends to the end.
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
