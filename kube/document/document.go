// Package document decodes JSON documents of operators, such as cloud properties and kubeconfigs.
//
// Its errors say what is wrong and where: they contain keys, indexes and expected forms, but no value of the document, which may be a
// secret, and no type of Go. All problems of a document are in one error.
package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	strictjson "sigs.k8s.io/json"
)

// Union is a type that has several forms in JSON, with a method UnmarshalJSON.
type Union interface {
	// Form describes the forms, for example `a number or a hash`.
	Form() string
	// Hash returns a pointer to a struct with the keys of a hash, or nil if a hash is not one of the forms.
	Hash() any
}

// FormError is an error of a Union's UnmarshalJSON that is shown to the operator: the text after the path of the value, for example "has
// 2000 ports; use at most 1000".
type FormError string

func (e FormError) Error() string { return string(e) }

// ErrEmpty is the error for an empty string.
const ErrEmpty FormError = "is empty; remove the key, or set a value"

// Decode decodes JSON into the value at into, and rejects unknown and duplicate keys. source is the name of the document, or "". A null is
// like a missing key. A string in a struct of this module must not be empty. Empty input is decoded like {}.
func Decode(source string, raw []byte, into any) error { return decode(source, raw, into, true) }

// DecodeKnown is like Decode, but accepts unknown keys and empty strings, and keeps nulls.
func DecodeKnown(source string, raw []byte, into any) error { return decode(source, raw, into, false) }

// Unmarshal is json.Unmarshal with the errors of this package.
func Unmarshal(source string, raw []byte, into any) error {
	switch err := json.Unmarshal(raw, into); {
	case err == nil:
		return nil
	case len(bytes.TrimSpace(raw)) == 0:
		return withSource(source, errors.New("is empty"))
	}
	if err := DecodeKnown(source, raw, into); err != nil {
		return err
	}
	return withSource(source, errors.New("is not valid"))
}

func decode(source string, raw []byte, into any, strict bool) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		raw = []byte("{}")
	}
	var value any
	duplicates, err := strictjson.UnmarshalStrict(raw, &value, strictjson.DisallowDuplicateFields)
	if err != nil {
		return withSource(source, syntaxProblem(raw, err))
	}
	target := reflect.TypeOf(into).Elem()
	if value == nil {
		switch target.Kind() {
		case reflect.Pointer, reflect.Map, reflect.Slice:
			return nil // into remains nil
		case reflect.Struct:
			value = map[string]any{}
		default:
		}
	}
	check := checker{strict: strict}
	value = check.value(source, target, value)
	for _, duplicate := range duplicates {
		check.problems = append(check.problems, withSource(source, duplicate).Error())
	}
	if len(check.problems) > 0 {
		return errors.New(strings.Join(check.problems, "; "))
	}
	if !strict && strictjson.UnmarshalCaseSensitivePreserveInts(raw, into) == nil {
		return nil
	}
	// Without nulls, and with 64 instead of 64.0.
	if raw, err = json.Marshal(value); err == nil {
		err = strictjson.UnmarshalCaseSensitivePreserveInts(raw, into)
	}
	if err != nil {
		return withSource(source, errors.New("is not valid"))
	}
	return nil
}

func withSource(source string, err error) error {
	if source == "" {
		return err
	}
	return fmt.Errorf("%s: %w", source, err)
}

// syntaxProblem returns the position of a syntax error.
func syntaxProblem(raw []byte, err error) error {
	isSyntax, offset := strictjson.SyntaxErrorOffset(err)
	if !isSyntax {
		return errors.New("has a number that is out of range")
	}
	before := raw[:min(max(offset, 0), int64(len(raw)))]
	return fmt.Errorf("is not valid JSON: see line %d", 1+bytes.Count(before, []byte("\n")))
}

// checker collects the problems of a document.
type checker struct {
	strict   bool
	problems []string
}

func (c *checker) report(path, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if path != "" {
		text = path + " " + text
	}
	c.problems = append(c.problems, text)
}

// value checks a value at path for the type t, and returns it. If the check is strict, the result has no nulls.
func (c *checker) value(path string, t reflect.Type, value any) any {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if union, ok := reflect.TypeAssert[Union](reflect.New(t)); ok {
		if hash := union.Hash(); hash != nil {
			if object, ok := value.(map[string]any); ok {
				return c.object(path, reflect.TypeOf(hash).Elem(), object)
			}
		}
		return c.unmarshal(path, t, union.Form(), value)
	}
	if form, ok := forms[t.PkgPath()+"."+t.Name()]; ok {
		return c.unmarshal(path, t, form, value)
	}
	switch t.Kind() {
	case reflect.Struct:
		if object, ok := value.(map[string]any); ok {
			return c.object(path, t, object)
		}
	case reflect.Map:
		if object, ok := value.(map[string]any); ok {
			return c.hash(path, t, object)
		}
	case reflect.Slice:
		if list, ok := value.([]any); ok && t.Elem().Kind() != reflect.Uint8 {
			return c.list(path, t, list)
		}
	case reflect.Interface:
		return value
	default:
	}
	return c.scalar(path, t, value)
}

// forms are the forms of types of other modules that decode themselves.
var forms = map[string]string{
	"k8s.io/apimachinery/pkg/api/resource.Quantity":   `a quantity like "500m" or "2Gi"`,
	"k8s.io/apimachinery/pkg/apis/meta/v1.Duration":   `a duration like "90s" or "10m"`,
	"k8s.io/apimachinery/pkg/util/intstr.IntOrString": "a whole number or a string",
	"k8s.io/apimachinery/pkg/runtime.RawExtension":    "a value",
	"encoding/json.RawMessage":                        "a value",
}

// tryDecode returns the error of decoding the value into the type t.
func tryDecode(t reflect.Type, value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, reflect.New(t).Interface())
}

// unmarshal checks a value of a type that decodes itself.
func (c *checker) unmarshal(path string, t reflect.Type, form string, value any) any {
	err := tryDecode(t, value)
	var own FormError
	switch {
	case errors.As(err, &own):
		c.report(path, "%s", string(own))
	case err != nil:
		c.report(path, "must be %s", form)
	}
	return value
}

// object checks the keys of a struct.
func (c *checker) object(path string, t reflect.Type, object map[string]any) any {
	kept, fields := map[string]any{}, jsonFields(t)
	for _, key := range sortedKeys(object) {
		field, known := fields[key]
		switch {
		case !known && c.strict:
			c.unknown(path, key, t)
		case !known, object[key] == nil:
			if !c.strict {
				kept[key] = object[key]
			}
		default:
			inner := join(path, key)
			if c.strict && object[key] == "" && isOwn(t) && field.Kind() == reflect.String {
				c.report(inner, "%s", string(ErrEmpty))
				continue
			}
			kept[key] = c.value(inner, field, object[key])
		}
	}
	return kept
}

// hash checks the values of a map.
func (c *checker) hash(path string, t reflect.Type, object map[string]any) any {
	kept := map[string]any{}
	for _, key := range sortedKeys(object) {
		switch {
		case object[key] != nil:
			kept[key] = c.value(fmt.Sprintf("%s[%q]", path, key), t.Elem(), object[key])
		case !c.strict, t.Elem().Kind() == reflect.Interface:
			kept[key] = nil
		}
	}
	return kept
}

func (c *checker) list(path string, t reflect.Type, list []any) any {
	kept := make([]any, 0, len(list))
	for i, element := range list {
		inner := fmt.Sprintf("%s[%d]", path, i)
		if element == nil && t.Elem().Kind() != reflect.Interface {
			c.report(inner, "must be %s, not null", describeType(t.Elem()))
			continue
		}
		kept = append(kept, c.value(inner, t.Elem(), element))
	}
	return kept
}

// scalar checks a value that should be neither a hash nor a list, or that has another type than it should.
func (c *checker) scalar(path string, t reflect.Type, value any) any {
	if value != nil && tryDecode(t, value) == nil {
		return value
	}
	_, isText := value.(string)
	switch {
	case isText && t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		c.report(path, "must be base64")
	case isWhole(value) && describeType(t) == "a whole number":
		c.report(path, "is out of range")
	case isNumber(value) && describeType(t) == "a whole number":
		c.report(path, "must be a whole number")
	case t.Kind() == reflect.String && (isNumber(value) || isBool(value)):
		c.report(path, "must be a string, not %s; put it in quotes", describeValue(value))
	default:
		c.report(path, "must be %s, not %s", describeType(t), describeValue(value))
	}
	return value
}
