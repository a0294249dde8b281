package call

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	strictjson "sigs.k8s.io/json"
)

// DecodeStrict decodes JSON into the value at into. Unknown and duplicate keys and values of the wrong type are errors that name
// the key. Messages begin with source, for example "cloud_properties". Empty input is decoded like {}.
func DecodeStrict(source string, raw []byte, into any) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		raw = []byte("{}")
	}
	unknown, err := strictjson.UnmarshalStrict(raw, into)
	if err != nil {
		var mismatch *json.UnmarshalTypeError
		if errors.As(err, &mismatch) && mismatch.Field != "" {
			return fmt.Errorf("%s.%s must be %s, not %s", source, mismatch.Field, describeType(mismatch.Type), describeValue(mismatch.Value))
		}
		return fmt.Errorf("%s: %w", source, err)
	}
	if len(unknown) == 0 {
		return nil
	}
	messages := make([]string, 0, len(unknown))
	for _, fieldErr := range unknown {
		messages = append(messages, suggestKey(fieldErr.Error(), reflect.TypeOf(into).Elem()))
	}
	return fmt.Errorf("%s: %s", source, strings.Join(messages, "; "))
}

// describeValue describes the JSON type in an UnmarshalTypeError, for example "object" or "number 1.5", for messages.
func describeValue(value string) string {
	switch value {
	case "object":
		return "a hash"
	case "array":
		return "a list"
	case "bool":
		return "a boolean"
	}
	return "a " + value
}

// describeType describes a type for messages.
func describeType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "a hash"
	case reflect.Slice:
		return "a list"
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Bool:
		return "true or false"
	default:
		return "a " + t.Kind().String()
	}
}

// suggestKey adds the most similar key of the struct t to a message like `unknown field "memry"`.
func suggestKey(message string, t reflect.Type) string {
	parts := strings.Split(message, `"`)
	if len(parts) < 3 || !strings.HasPrefix(message, "unknown field") {
		return message
	}
	path := strings.Split(parts[1], ".")
	for _, key := range path[:len(path)-1] {
		t = fieldType(t, key)
	}
	unknown, best := path[len(path)-1], ""
	for _, key := range structKeys(t) {
		if d := editDistance(unknown, key); d <= len(key)/2 && (best == "" || d < editDistance(unknown, best)) {
			best = key
		}
	}
	if best == "" {
		return message
	}
	return fmt.Sprintf("%s (did you mean %q?)", message, best)
}

// structKeys returns the JSON keys of a struct.
func structKeys(t reflect.Type) []string {
	var keys []string
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	for field := range t.Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" && name != "-" {
			keys = append(keys, name)
		}
	}
	return keys
}

// fieldType returns the type of the struct field with this JSON key, or nil if there is no such field. For a list it returns the
// type of the elements; the key may have an index, like list[0].
func fieldType(t reflect.Type, key string) reflect.Type {
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	key, _, _ = strings.Cut(key, "[")
	for field := range t.Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name == key {
			elem := field.Type
			for elem.Kind() == reflect.Slice || elem.Kind() == reflect.Pointer {
				elem = elem.Elem()
			}
			return elem
		}
	}
	return nil
}

// editDistance returns the Levenshtein distance of two keys.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
