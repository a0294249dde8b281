package cpi

import (
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"bosh-kubernetes-cpi/cpi/disk"
	"bosh-kubernetes-cpi/cpi/vm"
	"bosh-kubernetes-cpi/stemcell"
)

const (
	propertiesPage   = "../docs/reference/cloud-properties.md"
	propertiesSchema = "../docs/reference/cloud-properties.schema.json"
)

// documentedProperties are the types of cloud_properties, with their sections in docs/reference/cloud-properties.md.
var documentedProperties = []struct {
	name, section string
	properties    reflect.Type
	open          bool // whether unknown keys are ignored
}{
	{"vm", "VMs", reflect.TypeFor[vm.Properties](), false},
	{"disk", "Disks", reflect.TypeFor[disk.Properties](), false},
	{"stemcell", "Stemcells", reflect.TypeFor[stemcell.Properties](), true},
}

var _ = Describe("docs/reference/cloud-properties.md", func() {
	It("has a row for each property, and for each key of a property with its own section, and no other rows", func() {
		page := readPage()
		for _, entry := range documentedProperties {
			known := map[string]bool{}
			for _, field := range jsonFields(entry.properties) {
				known[field.name] = true
				row, ok := page[entry.section][field.name]
				Expect(ok).To(BeTrue(), "%s has no row for property %s of %s", propertiesPage, field.name, entry.section)
				keys := projectKeys(field.goType)
				if section, ok := page[sectionOf(field.name)]; ok {
					Expect(slices.Sorted(maps.Keys(section))).To(ConsistOf(namesOf(keys)), "keys of %s in %s", field.name, propertiesPage)
					continue
				}
				for _, key := range keys {
					Expect(row).To(MatchRegexp(`\b`+key.name+`\b`), "the row of %s in %s does not name its key %s", field.name, propertiesPage, key.name)
				}
			}
			for key := range page[entry.section] {
				Expect(known).To(HaveKey(key), "%s has a row for unknown property %s", propertiesPage, key)
			}
		}
	})
})

var _ = It("docs/guides/disks.md says how update_disk changes each property of disks", func() {
	page, err := os.ReadFile("../docs/guides/disks.md")
	Expect(err).NotTo(HaveOccurred())
	_, section, _ := strings.Cut(string(page), "\n## Update a disk\n")
	table, _, _ := strings.Cut(section, "\n### ")
	for _, field := range jsonFields(reflect.TypeFor[disk.Properties]()) {
		if field.name != "name" { // of dynamic disks, which the director does not update
			Expect(table).To(MatchRegexp("\n\\|.*`"+field.name+"`.*\\|"), field.name)
		}
	}
})

var _ = Describe("The JSON Schema of cloud_properties", func() {
	It("is up to date; UPDATE_GOLDEN=1 regenerates it", func() {
		page, definitions := readPage(), map[string]any{}
		for _, entry := range documentedProperties {
			schema := objectSchema(entry.properties, definitions)
			for key, property := range schema["properties"].(map[string]any) {
				property.(map[string]any)["description"] = page[entry.section][key]
			}
			schema["additionalProperties"] = entry.open
			definitions[entry.name] = schema
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
		Expect(string(written)).To(Equal(string(raw)), "%s is outdated; run UPDATE_GOLDEN=1 go test ./cpi", propertiesSchema)
	})
})

var (
	rowOfPage = regexp.MustCompile("^\\| (`.+?) \\| (.+?) \\|")
	keyOfRow  = regexp.MustCompile("`([a-z_]+)`")
	linkOfRow = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// sectionOf returns the title of the section about the keys of a property. Only properties with many keys have such a section.
func sectionOf(property string) string { return strings.ToUpper(property[:1]) + property[1:] }

// readPage returns the second column of the page's tables, without Markdown, by section and property.
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
			page[section][key[1]] = strings.ReplaceAll(linkOfRow.ReplaceAllString(row[2], "$1"), "`", "")
		}
	}
	return page
}

type jsonField struct {
	name   string
	goType reflect.Type
}

func namesOf(fields []jsonField) []string {
	names := make([]string, 0, len(fields))
	for _, field := range fields {
		names = append(names, field.name)
	}
	return names
}

// jsonFields returns the fields of a struct by their JSON names, including those of inlined structs.
func jsonFields(t reflect.Type) []jsonField {
	var found []jsonField
	for structField := range t.Fields() {
		name, options, _ := strings.Cut(structField.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case name == "" && (structField.Anonymous || options == "inline"):
			found = append(found, jsonFields(structField.Type)...)
		case name != "":
			found = append(found, jsonField{name, structField.Type})
		}
	}
	return found
}

// projectKeys returns the keys of a hash, or of a list of hashes, if its type is from this project and not from Kubernetes.
func projectKeys(t reflect.Type) []jsonField {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || !strings.HasPrefix(t.PkgPath(), "bosh-kubernetes-cpi") || t == reflect.TypeFor[vm.Quantity]() {
		return nil
	}
	return jsonFields(t)
}

func objectSchema(t reflect.Type, definitions map[string]any) map[string]any {
	properties := map[string]any{}
	for _, field := range jsonFields(t) {
		properties[field.name] = schemaOf(field.goType, definitions)
	}
	return map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
}

// enumerations are the valid values of types.
var enumerations = map[reflect.Type][]any{
	reflect.TypeFor[corev1.PersistentVolumeMode]():       {corev1.PersistentVolumeFilesystem, corev1.PersistentVolumeBlock},
	reflect.TypeFor[corev1.PersistentVolumeAccessMode](): {corev1.ReadWriteOnce, corev1.ReadWriteMany, corev1.ReadWriteOncePod},
}

// schemaOf returns the schema of a type. It adds each struct to the definitions once, by its name.
func schemaOf(t reflect.Type, definitions map[string]any) map[string]any {
	numberOrString := map[string]any{"type": []string{"integer", "string"}}
	quantity := map[string]any{"type": []string{"number", "string"}}
	switch t {
	case reflect.TypeFor[intstr.IntOrString](): // a port by its number or its name
		return numberOrString
	case reflect.TypeFor[vm.Quantity](), reflect.TypeFor[resource.Quantity]():
		return quantity
	case reflect.TypeFor[[]vm.ServicePort]():
		port := schemaOf(reflect.TypeFor[vm.ServicePort](), definitions)
		ports := map[string]any{"type": "string", "pattern": "^[0-9]+(-[0-9]+)?$"}
		return map[string]any{"type": "array", "items": map[string]any{"anyOf": []any{map[string]any{"type": "integer"}, ports, port}}}
	case reflect.TypeFor[vm.EphemeralDisk]():
		return map[string]any{"anyOf": []any{quantity, objectSchema(t, definitions)}}
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
			definitions[t.Name()] = objectSchema(t, definitions)
		}
		return map[string]any{"$ref": "#/$defs/" + t.Name()}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return map[string]any{"type": "integer"}
	}
	Fail("no schema for type " + t.String())
	return nil
}
