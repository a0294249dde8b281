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

var _ = Describe("docs/reference/configuration.md", func() {
	var spec struct {
		Properties map[string]*struct {
			Default any `json:"default"`
		} `json:"properties"`
	}
	BeforeEach(func() { Expect(yaml.Unmarshal([]byte(readFile(jobSpec)), &spec)).To(Succeed()) })

	It("documents exactly the properties of the job", func() {
		var documented, specified []string
		for name := range documentedProperties() {
			if group := name[:max(strings.LastIndex(name, "."), 0)]; spec.Properties[group] != nil {
				name = group // a key of a property with several keys
			}
			documented = append(documented, name)
		}
		for name := range spec.Properties {
			specified = append(specified, name)
		}
		Expect(specified).NotTo(BeEmpty())
		slices.Sort(documented)
		Expect(slices.Compact(documented)).To(ConsistOf(specified))
	})

	It("documents the defaults of the job", func() {
		defaults := documentedProperties()
		for name, property := range spec.Properties {
			if property.Default != nil {
				Expect(defaults[name]).To(MatchRegexp("`(.* )?%s`", regexp.QuoteMeta(fmt.Sprint(property.Default))), name)
			}
		}
	})
})
