package docs

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

const (
	configurationPage = "docs/reference/configuration.md"
	jobSpec           = "jobs/kubernetes_cpi/spec"
)

// propertyRowPattern matches a table row of a property. The columns are the name, the description and the default.
var propertyRowPattern = regexp.MustCompile("(?m)^\\| (`[^|]+`) \\|(.*)\\|([^|]*)\\|$")

// pathPattern matches the path of an operation that sets a property of the job.
var pathPattern = regexp.MustCompile(`(?m)path: /(?:instance_groups/name=bosh|cloud_provider)/properties/(\S+)$`)

// documentedProperties returns the properties in the page's tables, each with the content of the default column. In a row with several
// names, `.port` after `blobstore.address` means blobstore.port.
func documentedProperties() map[string]string {
	defaults := map[string]string{}
	for _, columns := range propertyRowPattern.FindAllStringSubmatch(readFile(configurationPage), -1) {
		group := ""
		for name := range strings.SplitSeq(columns[1], ", ") {
			name = strings.Trim(name, "`")
			if strings.HasPrefix(name, ".") {
				name = group + name
			} else {
				group = name[:max(0, strings.LastIndex(name, "."))]
			}
			defaults[name] = columns[3]
		}
	}
	return defaults
}

// property is a property in the job's spec.
type property struct {
	Default any `json:"default"`
}

// jobProperties returns the properties in the job's spec, by name.
func jobProperties() map[string]*property {
	GinkgoHelper()
	var spec struct {
		Properties map[string]*property `json:"properties"`
	}
	Expect(yaml.Unmarshal([]byte(readFile(jobSpec)), &spec)).To(Succeed())
	Expect(spec.Properties).NotTo(BeEmpty())
	return spec.Properties
}

var _ = Describe("An ops file in the documentation", func() {
	It("sets only properties of the job", func() {
		known, checked := jobProperties(), 0
		for _, p := range pages() {
			for _, b := range p.blocks {
				for _, path := range pathPattern.FindAllStringSubmatch(b.content, -1) {
					name := strings.NewReplacer("?", "", "/", ".").Replace(path[1])
					Expect(known).To(HaveKey(name), p.position(b))
					checked++
				}
			}
		}
		Expect(checked).To(BeNumerically(">", 0))
	})
})

var _ = Describe("docs/reference/configuration.md", func() {
	It("documents exactly the properties of the job", func() {
		known := jobProperties()
		var documented, specified []string
		for name := range documentedProperties() {
			if group := name[:max(strings.LastIndex(name, "."), 0)]; known[group] != nil {
				name = group // a key of a property with several keys
			}
			documented = append(documented, name)
		}
		for name := range known {
			specified = append(specified, name)
		}
		slices.Sort(documented)
		Expect(slices.Compact(documented)).To(ConsistOf(specified))
	})

	It("documents the defaults of the job", func() {
		defaults := documentedProperties()
		for name, property := range jobProperties() {
			if property.Default != nil {
				Expect(defaults[name]).To(MatchRegexp("`(.* )?%s`", regexp.QuoteMeta(fmt.Sprint(property.Default))), name)
			}
		}
	})
})
