package manifests

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

// expectProperties checks cloud_properties against docs/cloud-properties.schema.json; kind is vm, disk or stemcell.
func expectProperties(properties any, kind string) {
	GinkgoHelper()
	if properties == nil {
		return
	}
	raw, err := os.ReadFile(repositoryRoot + "/docs/cloud-properties.schema.json")
	Expect(err).NotTo(HaveOccurred())
	var all schema
	Expect(json.Unmarshal(raw, &all)).To(Succeed())
	Expect(all.violations("#/$defs/"+kind, "cloud_properties", properties)).To(BeEmpty())
}

// schema is as much of JSON Schema as docs/cloud-properties.schema.json uses.
type schema struct {
	Definitions map[string]schemaRule `json:"$defs"`
}

type schemaRule struct {
	Reference            string                `json:"$ref"`
	AnyOf                []schemaRule          `json:"anyOf"`
	Enum                 []any                 `json:"enum"`
	Type                 any                   `json:"type"`
	Properties           map[string]schemaRule `json:"properties"`
	AdditionalProperties json.RawMessage       `json:"additionalProperties"`
	Items                *schemaRule           `json:"items"`
}

func (s schema) violations(reference, where string, value any) []string {
	definition, ok := s.Definitions[strings.TrimPrefix(reference, "#/$defs/")]
	if !ok {
		return []string{reference + " is not defined"}
	}
	return definition.violations(s, where, value)
}

// violations returns what the rule does not allow of the value, each with its place.
func (r schemaRule) violations(s schema, where string, value any) []string {
	switch {
	case r.Reference != "":
		return s.violations(r.Reference, where, value)
	case r.AnyOf != nil:
		var messages []string
		for _, each := range r.AnyOf {
			found := each.violations(s, where, value)
			if len(found) == 0 {
				return nil
			}
			messages = append(messages, found...)
		}
		return messages
	case r.Enum != nil && !slices.Contains(r.Enum, value):
		return []string{fmt.Sprintf("%s: %v is none of %v", where, value, r.Enum)}
	case r.Type != nil && !r.hasType(value):
		return []string{fmt.Sprintf("%s: %v is no %v", where, value, r.Type)}
	}
	var messages []string
	if list, ok := value.([]any); ok && r.Items != nil {
		for i, element := range list {
			messages = append(messages, r.Items.violations(s, fmt.Sprintf("%s[%d]", where, i), element)...)
		}
	}
	if hash, ok := value.(map[string]any); ok {
		for _, key := range slices.Sorted(maps.Keys(hash)) {
			messages = append(messages, r.keyViolations(s, where+"."+key, key, hash[key])...)
		}
	}
	return messages
}

func (r schemaRule) keyViolations(s schema, where, key string, value any) []string {
	if property, ok := r.Properties[key]; ok {
		return property.violations(s, where, value)
	}
	var others schemaRule
	switch string(r.AdditionalProperties) {
	case "", "true":
		return nil
	case "false":
		return []string{where + " is not known"}
	}
	if err := json.Unmarshal(r.AdditionalProperties, &others); err != nil {
		return []string{where + ": " + err.Error()}
	}
	return others.violations(s, where, value)
}

func (r schemaRule) hasType(value any) bool {
	types, ok := r.Type.([]any)
	if !ok {
		types = []any{r.Type}
	}
	switch value := value.(type) {
	case string:
		return slices.Contains[[]any](types, "string")
	case bool:
		return slices.Contains[[]any](types, "boolean")
	case float64:
		return slices.Contains[[]any](types, "number") || slices.Contains[[]any](types, "integer") && value == math.Trunc(value)
	case []any:
		return slices.Contains[[]any](types, "array")
	case map[string]any:
		return slices.Contains[[]any](types, "object")
	}
	return false
}

// jobProperties are the names of the job's properties.
func jobProperties() []string {
	GinkgoHelper()
	raw, err := os.ReadFile(jobDir + "/spec")
	Expect(err).NotTo(HaveOccurred())
	var spec struct{ Properties map[string]any }
	Expect(yaml.Unmarshal(raw, &spec)).To(Succeed())
	return slices.Sorted(maps.Keys(spec.Properties))
}

// leaves are the paths of a hash's values, as names of properties.
func leaves(prefix string, value any) []string {
	hash, ok := value.(map[string]any)
	if !ok {
		return []string{prefix}
	}
	var found []string
	for key, below := range hash {
		found = append(found, leaves(strings.TrimPrefix(prefix+"."+key, "."), below)...)
	}
	return found
}

// operation is one of an ops file's.
type operation struct {
	Path  string
	Value any
}

// properties are the names of the job's properties that the operation sets, and none when it is about something else.
func (o operation) properties() []string {
	for _, place := range []string{"/instance_groups/name=bosh/properties/", "/cloud_provider/properties/"} {
		if name, ok := strings.CutPrefix(o.Path, place); ok && !strings.HasPrefix(name, "director/") {
			return leaves(strings.NewReplacer("?", "", "/", ".").Replace(name), o.Value)
		}
	}
	return nil
}

var _ = Describe("An ops file", func() {
	It("sets no property that the CPI's job does not have", func() {
		paths, err := filepath.Glob(manifestPath("*.yml"))
		Expect(err).NotTo(HaveOccurred())
		known, set := jobProperties(), 0
		for _, path := range paths {
			raw, err := os.ReadFile(path)
			Expect(err).NotTo(HaveOccurred())
			var all []operation
			if yaml.Unmarshal(raw, &all) != nil {
				continue // a config, and no list of operations
			}
			for _, each := range all {
				for _, name := range each.properties() {
					Expect(known).To(ContainElement(name), "%s sets it", path)
					set++
				}
			}
		}
		Expect(set).To(BeNumerically(">", 10))
	})
})
