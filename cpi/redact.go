package cpi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
)

// redactedJSON is a JSON document that is redacted only if it is logged.
type redactedJSON []byte

// LogValue returns the document without its secrets.
func (d redactedJSON) LogValue() slog.Value { return slog.StringValue(redact(d)) }

// redact returns the document without secrets: it replaces the env of create_vm, and each value with a key that contains one of
// secretWords.
func redact(raw []byte) string {
	var document any
	if err := json.Unmarshal(raw, &document); err != nil {
		return fmt.Sprintf("(%d bytes that are not JSON)", len(raw))
	}
	if request, ok := document.(map[string]any); ok && request["method"] == "create_vm" {
		if arguments, ok := request["arguments"].([]any); ok && len(arguments) == 6 {
			arguments[5] = "<redacted>" // env: certificates, passwords
		}
	}
	var redacted bytes.Buffer
	encoder := json.NewEncoder(&redacted)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(redactValue(document)); err != nil {
		return "(not loggable)"
	}
	return string(bytes.TrimSpace(redacted.Bytes()))
}

// secretWords are parts of keys with secret values.
var secretWords = []string{"password", "secret", "token", "private", "credential", "kubeconfig", "mbus", "cert", "key", "env"}

// redactValue replaces secret values recursively.
func redactValue(value any) any {
	switch value := value.(type) {
	case map[string]any:
		redacted := make(map[string]any, len(value))
		for key, inner := range value {
			if isSecretKey(key) {
				redacted[key] = "<redacted>"
			} else {
				redacted[key] = redactValue(inner)
			}
		}
		return redacted
	case []any:
		redacted := make([]any, len(value))
		for i, inner := range value {
			redacted[i] = redactValue(inner)
		}
		return redacted
	}
	return value
}

func isSecretKey(key string) bool {
	key = strings.ToLower(key)
	return slices.ContainsFunc(secretWords, func(word string) bool { return strings.Contains(key, word) })
}
