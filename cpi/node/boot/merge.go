//go:build linux

package boot

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// object is a JSON object. Values keep the text that the file has, for example of large numbers.
type object map[string]json.RawMessage

// errNotObject is the error if a value is valid JSON, but not an object.
var errNotObject = errors.New("not a JSON object")

// parseObject returns the object that is the whole text.
func parseObject(text []byte) (object, error) {
	if trimmed := bytes.TrimLeft(text, " \t\r\n"); len(trimmed) > 0 && trimmed[0] != '{' && json.Valid(text) {
		return nil, errNotObject
	}
	var parsed object
	if err := json.Unmarshal(text, &parsed); err != nil {
		return nil, fmt.Errorf("not valid JSON: %w", err)
	}
	return parsed, nil
}

// mergePatch returns the object in text with a JSON Merge Patch (RFC 7396), which is also an object. The same text and patch have the same
// result.
func mergePatch(text, patch []byte) ([]byte, error) {
	value, err := parseObject(text)
	if err != nil {
		return nil, err
	}
	changes, err := parseObject(patch)
	if err != nil {
		return nil, err
	}
	for key, change := range changes {
		if bytes.Equal(change, []byte("null")) {
			delete(value, key)
			continue
		}
		if change[0] != '{' {
			value[key] = change
			continue
		}
		old := value[key]
		if len(old) == 0 || old[0] != '{' {
			old = json.RawMessage("{}") // a patch replaces any value that is not an object
		}
		if value[key], err = mergePatch(old, change); err != nil {
			return nil, err
		}
	}
	var merged bytes.Buffer
	encoder := json.NewEncoder(&merged)
	encoder.SetEscapeHTML(false)
	err = encoder.Encode(value)
	return bytes.TrimSuffix(merged.Bytes(), []byte("\n")), err
}
