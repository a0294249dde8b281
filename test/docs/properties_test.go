package docs

import (
	"fmt"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

const (
	configuration = "docs/configuration.md"
	jobSpec       = "jobs/kubernetes_cpi/spec"
)

// propertyRow is one of the page's table: the cells of a property's name, its meaning and its default.
var propertyRow = regexp.MustCompile("(?m)^\\| (`[^|]+`) \\|(.*)\\|([^|]*)\\|$")

// documentedProperties are the properties that the page has a row for, each with the cell of its default. In a cell with
// several, `.port` after `blobstore.address` is blobstore.port.
func documentedProperties() map[string]string {
	found := map[string]string{}
	for _, cells := range propertyRow.FindAllStringSubmatch(readFile(configuration), -1) {
		group := ""
		for name := range strings.SplitSeq(cells[1], ", ") {
			name = strings.Trim(name, "`")
			if strings.HasPrefix(name, ".") {
				name = group + name
			} else {
				group = name[:max(0, strings.LastIndex(name, "."))]
			}
			found[name] = cells[3]
		}
	}
	return found
}

var _ = Describe("The page about the configuration", func() {
	var spec struct {
		Properties map[string]struct {
			Default any `json:"default"`
		} `json:"properties"`
	}
	BeforeEach(func() { Expect(yaml.Unmarshal([]byte(readFile(jobSpec)), &spec)).To(Succeed()) })

	It("has each property of the job, and no other", func() {
		var names, known []string
		for name := range documentedProperties() {
			names = append(names, name)
		}
		for name := range spec.Properties {
			known = append(known, name)
		}
		Expect(known).NotTo(BeEmpty())
		Expect(names).To(ConsistOf(known))
	})

	It("says the defaults that the job has", func() {
		rows := documentedProperties()
		for name, property := range spec.Properties {
			if property.Default != nil {
				Expect(rows[name]).To(MatchRegexp("`(.* )?%s`", regexp.QuoteMeta(fmt.Sprint(property.Default))), name)
			}
		}
	})
})
