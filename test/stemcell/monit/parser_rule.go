package monit

import (
	"fmt"
	"strconv"
	"strings"
)

// rule reads an if statement: a condition, the number of cycles, and the action. It ignores the action for the recovery, which starts
// with "else".
func (p *parser) rule(check *Check) error {
	condition, err := p.condition()
	if err != nil {
		return err
	}
	rule := &Rule{Times: 1, Cycles: 1, text: joinTokens(condition)}
	if rule.Action, rule.Program, err = p.action(); err != nil {
		return err
	}
	if p.skip("else") {
		p.skip("if")
		if _, err := p.condition(); err != nil {
			return err
		}
		if _, _, err := p.action(); err != nil {
			return err
		}
	}
	if err := rule.read(condition); err != nil {
		return err
	}
	check.Rules = append(check.Rules, rule)
	return nil
}

// condition consumes and returns the tokens before "then".
func (p *parser) condition() ([]token, error) {
	for i, word := range p.tokens {
		if word.is("then") {
			condition := p.tokens[:i]
			p.tokens = p.tokens[i+1:]
			return condition, nil
		}
	}
	return nil, fmt.Errorf("an if statement has no 'then'")
}

func (p *parser) action() (Action, *Program, error) {
	word, err := p.next()
	if err != nil {
		return Ignore, nil, err
	}
	action, ok := parseAction(strings.ToLower(word.text))
	if !ok {
		return Ignore, nil, fmt.Errorf("line %d: syntax error '%s'", word.line, word.text)
	}
	if action != Exec {
		return action, nil, nil
	}
	program, err := p.program()
	return action, program, err
}

func joinTokens(tokens []token) string {
	var words []string
	for _, t := range tokens {
		words = append(words, t.text)
	}
	return strings.Join(words, " ")
}

// read parses the condition.
func (r *Rule) read(condition []token) error {
	words, err := r.cycles(condition)
	if err != nil {
		return err
	}
	if len(words) == 0 {
		return fmt.Errorf("an if statement has no condition")
	}
	switch {
	case len(words) == 2 && words[1].is("restarts", "restart"): // 5 restarts within 5 cycles
		r.Event = timedOut
		r.Times, err = strconv.Atoi(words[0].text)
	case words[len(words)-1].is("exist") || words[len(words)-1].is("exists"): // does not exist
		r.Event = nonexistent
	case words[0].is("failed"):
		r.Event = connection
		r.Condition = readConnection(words[1:])
	case words[0].is("mem", "memory", "totalmem", "totalmemory", "cpu", "totalcpu", "children"):
		r.Event = resource
		r.Condition, err = readResource(words)
	}
	if err != nil {
		return fmt.Errorf("if %s: %w", r.text, err)
	}
	return nil
}

// cycles parses "for 3 cycles" or "2 times within 5 cycles" at the end of a condition, and returns the words before it.
func (r *Rule) cycles(words []token) ([]token, error) {
	if len(words) < 2 || !words[len(words)-1].is("cycle", "cycles") {
		return words, nil
	}
	n, err := strconv.Atoi(words[len(words)-2].text)
	if err != nil || n < 1 || n > 64 {
		return nil, fmt.Errorf("if %s: the number of cycles must be between 1 and 64", r.text)
	}
	r.Times, r.Cycles = n, n
	words = words[:len(words)-2]
	if len(words) > 0 && words[len(words)-1].is("for", "within", "in") {
		words = words[:len(words)-1]
	}
	if len(words) > 1 && words[len(words)-1].is("times", "time") {
		if r.Times, err = strconv.Atoi(words[len(words)-2].text); err != nil {
			return nil, fmt.Errorf("if %s: the number of times is not a number", r.text)
		}
		words = words[:len(words)-2]
		if len(words) > 0 && words[len(words)-1].is("for") {
			words = words[:len(words)-1]
		}
	}
	return words, nil
}

// readConnection parses the test of a connection. It returns nil for other conditions, because they are not supported.
func readConnection(words []token) condition {
	c := connectionCondition{network: "tcp", host: "localhost"}
	for i := 0; i+1 < len(words); i++ {
		value := words[i+1].text
		switch {
		case words[i].is("host"):
			c.host = value
		case words[i].is("port"):
			c.port = value
		case words[i].is("unixsocket", "unix"):
			c.network, c.path = "unix", value
		}
	}
	if c.port == "" && c.path == "" {
		return nil
	}
	return c
}

var units = map[string]float64{"%": 1, "": 1, "b": 1.0 / 1024, "byte": 1.0 / 1024, "bytes": 1.0 / 1024,
	"kb": 1, "kilobyte": 1, "kilobytes": 1, "mb": 1 << 10, "megabyte": 1 << 10, "megabytes": 1 << 10,
	"gb": 1 << 20, "gigabyte": 1 << 20, "gigabytes": 1 << 20}

// readResource parses, for example, "totalmem > 100 Mb". Limits of memory are in KiB or percent.
func readResource(words []token) (condition, error) {
	r := resourceCondition{name: strings.ToLower(words[0].text)}
	rest := words[1:]
	if len(rest) > 0 && rest[0].is("usage", "is") {
		rest = rest[1:]
	}
	if len(rest) < 2 {
		return nil, fmt.Errorf("the limit is missing")
	}
	switch {
	case rest[0].is(">", "greater", "gt"):
		r.greater = true
	case rest[0].is("<", "less", "lt"):
	default:
		return nil, nil // equality is not supported: no job uses it for memory
	}
	rest = rest[1:]
	if rest[0].is("than") {
		rest = rest[1:]
	}
	amount := strings.ToLower(joinTokens(rest))
	digits := len(amount) - len(strings.TrimLeft(amount, "0123456789."))
	limit, err := strconv.ParseFloat(amount[:digits], 64)
	if err != nil {
		return nil, fmt.Errorf("%q is not an amount", amount)
	}
	unit := strings.TrimSpace(amount[digits:])
	factor, known := units[unit]
	if !known {
		return nil, fmt.Errorf("%q is not a unit", unit)
	}
	r.limit, r.percent = limit*factor, unit == "%"
	return r, nil
}
