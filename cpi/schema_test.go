package cpi

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"bosh-kubernetes-cpi/cpi/disk"
	"bosh-kubernetes-cpi/cpi/machine"
	"bosh-kubernetes-cpi/stemcell"
)

const (
	propertiesPage   = "../docs/cloud-properties.md"
	propertiesSchema = "../docs/cloud-properties.schema.json"
)

// documented are the cloud_properties: what the code takes, and the section of the page about them.
var documented = []struct {
	name, section string
	properties    reflect.Type
	open          bool // other keys are ignored
}{
	{"vm", "VMs", reflect.TypeFor[machine.Properties](), false},
	{"disk", "Disks", reflect.TypeFor[disk.Properties](), false},
	{"stemcell", "Stemcells", reflect.TypeFor[stemcell.Properties](), true},
}

var _ = Describe("The page about cloud_properties", func() {
	It("has a row for each property, with each key of the project's own hashes, and none for others", func() {
		page := readPage()
		for _, each := range documented {
			known := map[string]bool{}
			for _, field := range fields(each.properties) {
				known[field.name] = true
				row, ok := page[each.section][field.name]
				Expect(ok).To(BeTrue(), "%s has no row for the property %s of %s", propertiesPage, field.name, each.section)
				for _, below := range own(field.of) {
					Expect(row).To(MatchRegexp(`\b`+below.name+`\b`), "the row of %s in %s does not name its key %s", field.name, propertiesPage, below.name)
				}
			}
			for key := range page[each.section] {
				Expect(known).To(HaveKey(key), "%s has a row for %s, which the code does not know", propertiesPage, key)
			}
		}
	})
})

var _ = Describe("The JSON Schema of cloud_properties", func() {
	It("is what the code takes; UPDATE_GOLDEN=1 writes it", func() {
		page, definitions := readPage(), map[string]any{}
		for _, each := range documented {
			schema := object(each.properties, definitions)
			for key, property := range schema["properties"].(map[string]any) {
				property.(map[string]any)["description"] = page[each.section][key]
			}
			schema["additionalProperties"] = each.open
			definitions[each.name] = schema
		}
		raw, err := json.MarshalIndent(map[string]any{
			"$schema": "https://json-schema.org/draft/2020-12/schema",
			"title":   "cloud_properties of the BOSH CPI for Kubernetes",
			"$defs":   definitions,
		}, "", "  ")
		Expect(err).NotTo(HaveOccurred())
		raw = append(raw, '\n')
		if os.Getenv("UPDATE_GOLDEN") != "" {
			Expect(os.WriteFile(propertiesSchema, raw, 0o644)).To(Succeed())
		}
		written, err := os.ReadFile(propertiesSchema)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(written)).To(Equal(string(raw)), "%s is not in step with the code: run UPDATE_GOLDEN=1 go test ./cpi", propertiesSchema)
	})
})

var (
	rowOfPage = regexp.MustCompile("^\\| (`.+?) \\| (.+?) \\|")
	keyOfRow  = regexp.MustCompile("`([a-z_]+)`")
)

// readPage answers the page's tables: section, key, and what the other columns say.
func readPage() map[string]map[string]string {
	GinkgoHelper()
	raw, err := os.ReadFile(propertiesPage)
	Expect(err).NotTo(HaveOccurred())
	page, section := map[string]map[string]string{}, ""
	for line := range strings.Lines(string(raw)) {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			section, _, _ = strings.Cut(strings.TrimSpace(title), " ")
			page[section] = map[string]string{}
		}
		row := rowOfPage.FindStringSubmatch(line)
		if row == nil || page[section] == nil {
			continue
		}
		for _, key := range keyOfRow.FindAllStringSubmatch(row[1], -1) {
			page[section][key[1]] = strings.ReplaceAll(row[2], "`", "")
		}
	}
	return page
}

type field struct {
	name string
	of   reflect.Type
}

// fields are a struct's, as JSON names them; those of an inlined struct are its own.
func fields(t reflect.Type) []field {
	var found []field
	for field0 := range t.Fields() {
		name, options, _ := strings.Cut(field0.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case name == "" && (field0.Anonymous || options == "inline"):
			found = append(found, fields(field0.Type)...)
		case name != "":
			found = append(found, field{name, field0.Type})
		}
	}
	return found
}

// own answers the keys of a hash, or of a list of hashes, that is the project's own and not Kubernetes'.
func own(t reflect.Type) []field {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || !strings.HasPrefix(t.PkgPath(), "bosh-kubernetes-cpi") || t == reflect.TypeFor[machine.Quantity]() {
		return nil
	}
	return fields(t)
}

func object(t reflect.Type, definitions map[string]any) map[string]any {
	properties := map[string]any{}
	for _, field := range fields(t) {
		properties[field.name] = schemaOf(field.of, definitions)
	}
	return map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
}

// enumerations are the values that the code takes of a type.
var enumerations = map[reflect.Type][]any{
	reflect.TypeFor[corev1.PersistentVolumeMode]():       {corev1.PersistentVolumeFilesystem, corev1.PersistentVolumeBlock},
	reflect.TypeFor[corev1.PersistentVolumeAccessMode](): {corev1.ReadWriteOnce, corev1.ReadWriteMany, corev1.ReadWriteOncePod},
}

// schemaOf describes a type. Structs are defined once, by their name.
func schemaOf(t reflect.Type, definitions map[string]any) map[string]any {
	numberOrText := map[string]any{"type": []string{"integer", "string"}}
	switch t {
	case reflect.TypeFor[machine.Quantity](), reflect.TypeFor[intstr.IntOrString](): // a port by its number or its name
		return numberOrText
	case reflect.TypeFor[resource.Quantity]():
		return map[string]any{"type": []string{"number", "string"}}
	case reflect.TypeFor[machine.ServicePorts]():
		port := schemaOf(reflect.TypeFor[machine.ServicePort](), definitions)
		ports := map[string]any{"type": "string", "pattern": "^[0-9]+-[0-9]+$"}
		return map[string]any{"type": "array", "items": map[string]any{"anyOf": []any{map[string]any{"type": "integer"}, ports, port}}}
	case reflect.TypeFor[machine.EphemeralDisk]():
		return map[string]any{"anyOf": []any{numberOrText, object(t, definitions)}}
	}
	if values, ok := enumerations[t]; ok {
		return map[string]any{"enum": values}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem(), definitions)
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(t.Elem(), definitions)}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schemaOf(t.Elem(), definitions)}
	case reflect.Struct:
		if _, known := definitions[t.Name()]; !known {
			definitions[t.Name()] = nil // it may contain itself
			definitions[t.Name()] = object(t, definitions)
		}
		return map[string]any{"$ref": "#/$defs/" + t.Name()}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return map[string]any{"type": "integer"}
	}
	Fail("the schema knows no type " + t.String())
	return nil
}
