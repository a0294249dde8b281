package monit

import (
	"fmt"
	"strings"
	"time"
)

// check reads a check statement with all its parts.
func (p *parser) check() error {
	typeName, err := p.text()
	if err != nil {
		return err
	}
	serviceType, ok := typeNames[strings.ToLower(typeName)]
	if !ok {
		return fmt.Errorf("syntax error '%s'", typeName)
	}
	name, err := p.text()
	if err != nil {
		return err
	}
	check := &Check{Type: serviceType, Name: name, Mode: "active"}
	for !p.done() {
		if err := p.part(check); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if check.Type == Process && check.PidFile == "" && check.Matching == "" {
		return fmt.Errorf("%s: a process requires a pidfile or a pattern", name)
	}
	p.config.Checks = append(p.config.Checks, check)
	return nil
}

// part reads a part of a check statement.
func (p *parser) part(check *Check) error {
	word, err := p.next()
	if err != nil {
		return err
	}
	switch {
	case word.is("with", "in", "and", "has", "using", "use", "for", "of", "on", "as"): // noise
	case word.is("pidfile"):
		check.PidFile, err = p.text()
	case word.is("matching"):
		check.Matching, err = p.text()
	case word.is("path", "address"):
		_, err = p.text()
	case word.is("start"):
		check.Start, err = p.program()
	case word.is("stop"):
		check.Stop, err = p.program()
	case word.is("restart"):
		check.Restart, err = p.program()
	case word.is("group"):
		var group string
		group, err = p.text()
		check.Group = append(check.Group, group)
	case word.is("depend", "depends"):
		p.dependencies(check)
	case word.is("mode"):
		check.Mode, err = p.text()
	case word.is("every"):
		_, err = p.number()
		p.skip("cycles", "cycle")
	case word.is("if"):
		err = p.rule(check)
	case word.is("alert", "noalert"):
		err = p.alert()
	default:
		err = fmt.Errorf("line %d: syntax error '%s'", word.line, word.text)
	}
	return err
}

func (p *parser) dependencies(check *Check) {
	p.skip("on")
	for !p.done() && !p.beginsPart() {
		name, _ := p.next()
		check.DependsOn = append(check.DependsOn, name.text)
	}
}

func (p *parser) beginsPart() bool {
	return p.tokens[0].is("with", "pidfile", "start", "stop", "restart", "group", "depend", "depends", "mode", "every", "if",
		"alert", "noalert")
}

// alert skips an alert statement of a service, because all alerts are sent to the recipients of "set alert".
func (p *parser) alert() error {
	_, err := p.text()
	p.skipAll("only", "on", "not", "but")
	for !p.done() && p.tokens[0].quoted {
		p.tokens = p.tokens[1:]
	}
	return err
}

// program reads the program after start, stop, restart or exec.
func (p *parser) program() (*Program, error) {
	p.skipAll("program", "=")
	command, err := p.text()
	if err != nil {
		return nil, err
	}
	program := &Program{Arguments: arguments(command), Timeout: defaultProgramTimeout}
	if len(program.Arguments) == 0 {
		return nil, fmt.Errorf("the command is empty")
	}
	for !p.done() {
		switch {
		case p.skip("as", "and"):
		case p.skip("uid"):
			program.UID, err = p.text()
		case p.skip("gid"):
			program.GID, err = p.text()
		case p.tokens[0].is("with") && len(p.tokens) > 1 && p.tokens[1].is("timeout"):
			p.tokens = p.tokens[1:]
		case p.skip("timeout"):
			var seconds int
			seconds, err = p.number()
			program.Timeout = time.Duration(seconds) * time.Second
			p.skip("seconds", "second")
		default:
			return program, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return program, nil
}

// arguments splits a command at spaces outside of quotes.
func arguments(command string) []string {
	var words []string
	var word strings.Builder
	quote, inWord := rune(0), false
	for _, c := range command {
		switch {
		case quote == 0 && (c == '\'' || c == '"'):
			quote, inWord = c, true
		case c == quote:
			quote = 0
		case quote == 0 && (c == ' ' || c == '\t' || c == '\n'):
			if inWord {
				words = append(words, word.String())
				word.Reset()
			}
			inWord = false
		default:
			word.WriteRune(c)
			inWord = true
		}
	}
	if inWord {
		words = append(words, word.String())
	}
	return words
}
