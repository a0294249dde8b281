package cpi

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"bosh-kubernetes-cpi/kube/document"
)

// jsonSchema is the part of a JSON Schema that describes the form of a value.
type jsonSchema struct {
	Ref                  string                `json:"$ref"`
	Type                 any                   `json:"type"`
	Enum                 []any                 `json:"enum"`
	AnyOf                []jsonSchema          `json:"anyOf"`
	Items                *jsonSchema           `json:"items"`
	Properties           map[string]jsonSchema `json:"properties"`
	AdditionalProperties json.RawMessage       `json:"additionalProperties"`
	Defs                 map[string]jsonSchema `json:"$defs"`
}

// accepts reports whether the schema permits a value of one of these types.
func (s jsonSchema) accepts(types ...string) bool {
	if slices.ContainsFunc(s.AnyOf, func(one jsonSchema) bool { return one.accepts(types...) }) {
		return true
	}
	switch {
	case s.Ref != "":
		return slices.Contains(types, "object")
	case len(s.Enum) > 0:
		return slices.Contains(types, "string")
	}
	switch permitted := s.Type.(type) {
	case string:
		return slices.Contains(types, permitted)
	case []any:
		return slices.ContainsFunc(permitted, func(one any) bool { return slices.Contains(types, one.(string)) })
	}
	return len(s.AnyOf) == 0
}

// schemaWalk visits the values of the schema of cloud_properties.
type schemaWalk struct {
	defs  map[string]jsonSchema
	visit func(path string, s jsonSchema, wrap func(value any) any)
}

// walk visits the value at the path, and those in it. wrap returns a document with a value at the path.
func (w schemaWalk) walk(path string, s jsonSchema, depth int, wrap func(value any) any) {
	s = w.resolve(s)
	if depth > 0 {
		w.visit(path, s, wrap)
	}
	w.walkParts(path, s, depth, wrap)
}

func (w schemaWalk) resolve(s jsonSchema) jsonSchema {
	if s.Ref != "" {
		return w.defs[strings.TrimPrefix(s.Ref, "#/$defs/")]
	}
	return s
}

// walkParts visits the values in the value at the path.
func (w schemaWalk) walkParts(path string, s jsonSchema, depth int, wrap func(value any) any) {
	for key, property := range s.Properties {
		w.walk(path+"."+key, property, depth+1, func(value any) any { return wrap(map[string]any{key: value}) })
	}
	if s.Items != nil {
		w.walk(path+"[0]", *s.Items, depth+1, func(value any) any { return wrap([]any{value}) })
	}
	var values jsonSchema
	if json.Unmarshal(s.AdditionalProperties, &values) == nil && values.Type != nil {
		w.walk(path+`["k"]`, values, depth+1, func(value any) any { return wrap(map[string]any{"k": value}) })
	}
	for _, one := range s.AnyOf {
		w.walkParts(path, w.resolve(one), depth, wrap)
	}
}

// goText matches text in an error that only a programmer understands.
var goText = regexp.MustCompile(`map\[|\bstruct\b|interface|float64|int(32|64)|\[\]|unmarshal|\\|\^|Go value`)

var _ = Describe("cloud_properties of any form", func() {
	values := []struct {
		value any
		types []string
	}{
		{"canary", []string{"string"}},
		{7, []string{"integer", "number"}},
		{1.5, []string{"number"}},
		{true, []string{"boolean"}},
		{[]any{}, []string{"array"}},
		{map[string]any{}, []string{"object"}},
	}

	It("are not set as null, and rejected with the path and the expected form, and without a type of Go", func() {
		raw, err := os.ReadFile(propertiesSchema)
		Expect(err).NotTo(HaveOccurred())
		var schema jsonSchema
		Expect(json.Unmarshal(raw, &schema)).To(Succeed())
		places, rejected := 0, 0
		for _, entry := range documentedProperties {
			if entry.open {
				continue
			}
			decode := func(content any) error {
				raw, err := json.Marshal(content)
				Expect(err).NotTo(HaveOccurred())
				return document.Decode("cloud_properties", raw, reflect.New(entry.properties).Interface())
			}
			visit := func(path string, s jsonSchema, wrap func(value any) any) {
				places++
				if err := decode(wrap(nil)); strings.HasSuffix(path, "]") {
					Expect(err).To(Or(BeNil(), MatchError(ContainSubstring(path+" must be "))))
				} else {
					Expect(err).NotTo(HaveOccurred(), "null at %s", path)
				}
				for _, v := range values {
					err := decode(wrap(v.value))
					if s.accepts(v.types...) {
						continue // a value of this type can still be invalid
					}
					Expect(err).To(MatchError(ContainSubstring(path)), "%v at %s", v.value, path)
					Expect(err.Error()).NotTo(MatchRegexp(goText.String()), "%v at %s", v.value, path)
					rejected++
				}
			}
			schemaWalk{defs: schema.Defs, visit: visit}.walk("cloud_properties", schema.Defs[entry.name], 0, func(value any) any { return value })
		}
		AddReportEntry(fmt.Sprintf("%d places, %d values rejected", places, rejected))
		Expect(places).To(BeNumerically(">", 200))
		Expect(rejected).To(BeNumerically(">", 1000))
	})
})
