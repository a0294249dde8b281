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

// DecodeStrict fills into from JSON. A key that is unknown or given twice, and a value of the wrong
// type, is an error that names the key; what is the source's name in it, for example
// "cloud_properties".
func DecodeStrict(source string, raw []byte, into any) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		raw = []byte("{}")
	}
	unknown, err := strictjson.UnmarshalStrict(raw, into)
	if err != nil {
		var mismatch *json.UnmarshalTypeError
		if errors.As(err, &mismatch) && mismatch.Field != "" {
			return fmt.Errorf("%s.%s: a %s is not what belongs there (it takes %s)", source, mismatch.Field, mismatch.Value, describe(mismatch.Type))
		}
		return fmt.Errorf("%s: %w", source, err)
	}
	if len(unknown) == 0 {
		return nil
	}
	messages := make([]string, 0, len(unknown))
	for _, fieldErr := range unknown {
		messages = append(messages, suggest(fieldErr.Error(), reflect.TypeOf(into)))
	}
	return fmt.Errorf("%s: %s", source, strings.Join(messages, "; "))
}

func describe(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "a hash"
	case reflect.Slice:
		return "a list"
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Bool:
		return "true or false"
	default:
		return "a " + t.Kind().String()
	}
}

// suggest adds the nearest known key to a complaint like `unknown field "memry"`.
func suggest(complaint string, t reflect.Type) string {
	parts := strings.Split(complaint, `"`)
	if len(parts) < 3 || !strings.HasPrefix(complaint, "unknown field") {
		return complaint
	}
	path := strings.Split(parts[1], ".")
	for _, key := range path[:len(path)-1] {
		t = fieldType(t, key)
	}
	wrong, best := path[len(path)-1], ""
	for _, key := range keys(t) {
		if d := distance(wrong, key); d <= len(key)/2 && (best == "" || d < distance(wrong, best)) {
			best = key
		}
	}
	if best == "" {
		return complaint
	}
	return fmt.Sprintf("%s (did you mean %q?)", complaint, best)
}

func keys(t reflect.Type) []string {
	var names []string
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	for field := range t.Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}

func fieldType(t reflect.Type, key string) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	key, _, _ = strings.Cut(key, "[")
	for field := range t.Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name == key {
			field := field.Type
			for field.Kind() == reflect.Slice || field.Kind() == reflect.Pointer {
				field = field.Elem()
			}
			return field
		}
	}
	return nil
}

// distance is the number of single-character edits between two keys (Levenshtein).
func distance(a, b string) int {
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
