package network

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// RenderAddressTemplate is the value of an annotation with these addresses in the place of its actions.
//
// The syntax is that of Go's text/template, which would do more. But it calls methods by name, so that
// the linker has to keep every exported method of every type for it: a fifth of the program, and 2 MiB
// of the memory of every call.
func RenderAddressTemplate(value string, addresses []string) (string, error) {
	var text strings.Builder
	for {
		before, rest, more := strings.Cut(value, "{{")
		text.WriteString(before)
		if !more {
			return text.String(), nil
		}
		action, rest, closed := strings.Cut(rest, "}}")
		if !closed {
			return "", fmt.Errorf("{{%s has no }}", action)
		}
		rendered, err := renderAction(strings.TrimSpace(action), addresses)
		if err != nil {
			return "", fmt.Errorf("{{%s}}: %w", action, err)
		}
		text.WriteString(rendered)
		value = rest
	}
}

func renderAction(action string, addresses []string) (string, error) {
	name, argument, _ := strings.Cut(action, " .IPs")
	argument = strings.TrimSpace(argument)
	switch {
	case name == "json" && argument == "":
		list, err := json.Marshal(addresses)
		return string(list), err
	case name == "join":
		separator, err := strconv.Unquote(argument)
		if err != nil {
			return "", fmt.Errorf("%q is no separator in quotes", argument)
		}
		return strings.Join(addresses, separator), nil
	case name == "index":
		n, err := strconv.Atoi(argument)
		if err != nil || n < 0 || n >= len(addresses) {
			return "", fmt.Errorf("there is no address %q, they are counted from 0 to %d", argument, len(addresses)-1)
		}
		return addresses[n], nil
	}
	return "", fmt.Errorf(`not known; there are {{json .IPs}}, {{join .IPs ","}} and {{index .IPs 0}}`)
}
