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

// expectProperties validates cloud_properties against docs/reference/cloud-properties.schema.json. kind is vm, disk or stemcell.
func expectProperties(properties any, kind string) {
	GinkgoHelper()
	if properties == nil {
		return
	}
	raw, err := os.ReadFile(repositoryRoot + "/docs/reference/cloud-properties.schema.json")
	Expect(err).NotTo(HaveOccurred())
	var parsed schema
	Expect(json.Unmarshal(raw, &parsed)).To(Succeed())
	Expect(parsed.violations("#/$defs/"+kind, "cloud_properties", properties)).To(BeEmpty())
}

// schema is a JSON Schema, restricted to the keywords that docs/reference/cloud-properties.schema.json uses.
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

// violations returns the violations of a definition in the value at path.
func (s schema) violations(reference, path string, value any) []string {
	definition, ok := s.Definitions[strings.TrimPrefix(reference, "#/$defs/")]
	if !ok {
		return []string{reference + " is not defined"}
	}
	return definition.violations(s, path, value)
}

// violations returns the violations of the rule in the value at path. Each starts with the path of the invalid value.
func (r schemaRule) violations(s schema, path string, value any) []string {
	switch {
	case r.Reference != "":
		return s.violations(r.Reference, path, value)
	case r.AnyOf != nil:
		var messages []string
		for _, alternative := range r.AnyOf {
			violations := alternative.violations(s, path, value)
			if len(violations) == 0 {
				return nil
			}
			messages = append(messages, violations...)
		}
		return messages
	case r.Enum != nil && !slices.Contains(r.Enum, value):
		return []string{fmt.Sprintf("%s: %v is not one of %v", path, value, r.Enum)}
	case r.Type != nil && !r.hasType(value):
		return []string{fmt.Sprintf("%s: %v is not of type %v", path, value, r.Type)}
	}
	var messages []string
	if list, ok := value.([]any); ok && r.Items != nil {
		for i, element := range list {
			messages = append(messages, r.Items.violations(s, fmt.Sprintf("%s[%d]", path, i), element)...)
		}
	}
	if hash, ok := value.(map[string]any); ok {
		for _, key := range slices.Sorted(maps.Keys(hash)) {
			messages = append(messages, r.keyViolations(s, path+"."+key, key, hash[key])...)
		}
	}
	return messages
}

// keyViolations returns the violations of the rule in a key of a hash, and in its value.
func (r schemaRule) keyViolations(s schema, path, key string, value any) []string {
	if property, ok := r.Properties[key]; ok {
		return property.violations(s, path, value)
	}
	var additional schemaRule
	switch string(r.AdditionalProperties) {
	case "", "true":
		return nil
	case "false":
		return []string{"unknown key " + path}
	}
	if err := json.Unmarshal(r.AdditionalProperties, &additional); err != nil {
		return []string{path + ": " + err.Error()}
	}
	return additional.violations(s, path, value)
}

// hasType reports whether the value has one of the rule's types.
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

// jobProperties returns the names of the job's properties.
func jobProperties() []string {
	GinkgoHelper()
	raw, err := os.ReadFile(jobDir + "/spec")
	Expect(err).NotTo(HaveOccurred())
	var spec struct{ Properties map[string]any }
	Expect(yaml.Unmarshal(raw, &spec)).To(Succeed())
	return slices.Sorted(maps.Keys(spec.Properties))
}

// propertyNames returns the names of the properties that a hash sets, such as "kubernetes.namespace".
func propertyNames(prefix string, value any) []string {
	hash, ok := value.(map[string]any)
	if !ok {
		return []string{prefix}
	}
	var names []string
	for key, nested := range hash {
		names = append(names, propertyNames(strings.TrimPrefix(prefix+"."+key, "."), nested)...)
	}
	return names
}

// operation is an operation of an ops file.
type operation struct {
	Path  string
	Value any
}

// properties returns the names of the job's properties that the operation sets. The paths of other jobs begin with director or nats-sync.
func (o operation) properties() []string {
	for _, path := range []string{"/instance_groups/name=bosh/properties/", "/cloud_provider/properties/"} {
		if name, ok := strings.CutPrefix(o.Path, path); ok && !strings.HasPrefix(name, "director/") && !strings.HasPrefix(name, "nats-sync") {
			return propertyNames(strings.NewReplacer("?", "", "/", ".").Replace(name), o.Value)
		}
	}
	return nil
}

var _ = Describe("An ops file", func() {
	It("sets only properties of the CPI's job", func() {
		paths, err := filepath.Glob(manifestPath("*.yml"))
		Expect(err).NotTo(HaveOccurred())
		known, checked := jobProperties(), 0
		for _, path := range paths {
			raw, err := os.ReadFile(path)
			Expect(err).NotTo(HaveOccurred())
			var operations []operation
			if yaml.Unmarshal(raw, &operations) != nil {
				continue // a config instead of a list of operations
			}
			for _, o := range operations {
				for _, name := range o.properties() {
					Expect(known).To(ContainElement(name), path)
					checked++
				}
			}
		}
		Expect(checked).To(BeNumerically(">", 10))
	})
})
