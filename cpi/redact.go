package cpi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
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
	if hash, ok := document.(map[string]any); ok && hash["method"] == "create_vm" {
		if arguments, ok := hash["arguments"].([]any); ok && len(arguments) == 6 {
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
func redactValue(document any) any {
	switch value := document.(type) {
	case map[string]any:
		clean := make(map[string]any, len(value))
		for key, inner := range value {
			if isSecretKey(key) {
				clean[key] = "<redacted>"
			} else {
				clean[key] = redactValue(inner)
			}
		}
		return clean
	case []any:
		clean := make([]any, len(value))
		for i, inner := range value {
			clean[i] = redactValue(inner)
		}
		return clean
	}
	return document
}

func isSecretKey(key string) bool {
	key = strings.ToLower(key)
	for _, word := range secretWords {
		if strings.Contains(key, word) {
			return true
		}
	}
	return false
}
