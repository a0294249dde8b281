package monit

import (
	"fmt"
	"strings"
)

// rule skips an if statement: a condition, an action, and the action for the recovery, which starts with "else".
func (p *parser) rule(check *Check) error {
	condition, err := p.conditionalAction()
	if err != nil {
		return err
	}
	check.unsupported = append(check.unsupported, "if "+condition)
	if p.skip("else") {
		p.skip("if")
		_, err = p.conditionalAction()
	}
	return err
}

// conditionalAction consumes a condition, "then" and an action. It returns the condition.
func (p *parser) conditionalAction() (string, error) {
	var condition []string
	for !p.skip("then") {
		word, err := p.text()
		if err != nil {
			return "", fmt.Errorf("an if statement has no 'then'")
		}
		condition = append(condition, word)
	}
	word, err := p.next()
	if err != nil {
		return "", err
	}
	action, ok := parseAction(strings.ToLower(word.text))
	if !ok && !word.is("timeout") {
		return "", fmt.Errorf("line %d: syntax error '%s'", word.line, word.text)
	}
	if action == Exec {
		_, err = p.program()
	}
	return strings.Join(condition, " "), err
}
