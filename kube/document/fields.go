package document

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
)

// modulePath is the beginning of the import path of each package of this module.
var modulePath, _, _ = strings.Cut(reflect.TypeFor[checker]().PkgPath(), "/")

// isOwn reports whether the struct t is defined in this module.
func isOwn(t reflect.Type) bool { return strings.HasPrefix(t.PkgPath(), modulePath+"/") }

// jsonFields returns the types of a struct's fields by JSON key, with those of embedded structs.
func jsonFields(t reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for field := range t.Fields() {
		name, options, tagged := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-" || !field.IsExported() && !field.Anonymous:
		case name != "":
			fields[name] = field.Type
		case field.Anonymous || tagged && strings.Contains(options, "inline"):
			embedded := field.Type
			for embedded.Kind() == reflect.Pointer {
				embedded = embedded.Elem()
			}
			if embedded.Kind() == reflect.Struct {
				maps.Copy(fields, jsonFields(embedded))
			}
		default:
			fields[field.Name] = field.Type
		}
	}
	return fields
}

// HasKey reports whether the struct has a field with this JSON key.
func HasKey(object any, key string) bool {
	_, found := jsonFields(reflect.TypeOf(object))[key]
	return found
}

// MisspelledKey returns the JSON key of the struct's fields of which key is probably a misspelling, or "".
func MisspelledKey(object any, key string) string { return similarKey(reflect.TypeOf(object), key, 4) }

// similarKey returns the most similar key of the struct t of which at most one of every so many letters differs, or "".
func similarKey(t reflect.Type, key string, letters int) (similar string) {
	best := 0
	for _, known := range sortedKeys(jsonFields(t)) {
		if distance := editDistance(key, known); distance <= len(known)/letters && (similar == "" || distance < best) {
			similar, best = known, distance
		}
	}
	return similar
}

// Synonyms is implemented by structs that have a key for some keys of other products.
type Synonyms interface {
	// Synonyms returns the own key for each key of another product.
	Synonyms() map[string]string
}

// unknown reports an unknown key, with the key of the struct t that is a synonym, or the most similar one.
func (c *checker) unknown(path, key string, t reflect.Type) {
	text := fmt.Sprintf("unknown key %q", key)
	if path != "" {
		text = path + ": " + text
	}
	similar := similarKey(t, key, 2)
	if object, ok := reflect.TypeAssert[Synonyms](reflect.Zero(t)); ok {
		similar = cmp.Or(object.Synonyms()[key], similar)
	}
	if similar != "" {
		text += fmt.Sprintf(" (did you mean %q?)", similar)
	}
	c.problems = append(c.problems, text)
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func sortedKeys[V any](object map[string]V) []string { return slices.Sorted(maps.Keys(object)) }

func isNumber(value any) bool {
	switch value.(type) {
	case int64, float64:
		return true
	}
	return false
}

// isWhole reports whether the value is a number without a fraction.
func isWhole(value any) bool {
	number, ok := value.(float64)
	return isNumber(value) && (!ok || number == math.Trunc(number))
}

func isBool(value any) bool {
	_, ok := value.(bool)
	return ok
}

// describeValue describes the JSON type of a value.
func describeValue(value any) string {
	switch {
	case value == nil:
		return "null"
	case isNumber(value):
		return "a number"
	case isBool(value):
		return "a boolean"
	}
	switch value.(type) {
	case map[string]any:
		return "a hash"
	case []any:
		return "a list"
	}
	return "a string"
}

// describeType describes the JSON type that is decoded into t.
func describeType(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if union, ok := reflect.TypeAssert[Union](reflect.New(t)); ok {
		return union.Form()
	}
	if form, ok := forms[t.PkgPath()+"."+t.Name()]; ok {
		return form
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "a hash"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "base64"
		}
		return "a list"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Bool:
		return "true or false"
	default:
		return "a string"
	}
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
