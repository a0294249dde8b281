package network

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// RenderAddressTemplate returns the value of an annotation, with its template actions replaced by these addresses.
//
// The actions are a subset of Go's text/template. The package itself is not used, because it calls methods by name: the linker
// would keep all exported methods of all types. They would be a sixth of the program, and use 2 MiB of memory in each call.
func RenderAddressTemplate(value string, addresses []string) (string, error) {
	var rendered strings.Builder
	for {
		literal, rest, hasAction := strings.Cut(value, "{{")
		rendered.WriteString(literal)
		if !hasAction {
			return rendered.String(), nil
		}
		action, rest, closed := strings.Cut(rest, "}}")
		if !closed {
			return "", fmt.Errorf("unterminated {{ in %q", value)
		}
		result, err := renderAction(strings.TrimSpace(action), addresses)
		if err != nil {
			return "", fmt.Errorf("{{%s}}: %w", action, err)
		}
		rendered.WriteString(result)
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
			return "", fmt.Errorf("separator %q is not a quoted string", argument)
		}
		return strings.Join(addresses, separator), nil
	case name == "index":
		index, err := strconv.Atoi(argument)
		if err != nil || index < 0 || index >= len(addresses) {
			return "", fmt.Errorf("index %q is not valid; use 0 to %d", argument, len(addresses)-1)
		}
		return addresses[index], nil
	}
	return "", fmt.Errorf(`unknown function; use {{json .IPs}}, {{join .IPs ","}} or {{index .IPs 0}}`)
}
