package cpi

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// trailingZeroUnits matches units that time.Duration writes and operators omit: 2h0m0s is 2h.
var trailingZeroUnits = regexp.MustCompile(`([hm])(?:0m)?0s$`)

// timeoutDefaults returns the defaults of the table, as operators write them.
func timeoutDefaults() map[string]string {
	var t Timeouts
	defaults := map[string]string{}
	for _, row := range t.table() {
		defaults[row.key] = trailingZeroUnits.ReplaceAllString(row.fallback.String(), "$1")
	}
	return defaults
}

var _ = Describe("The timeout table", func() {
	read := func(path string) string {
		GinkgoHelper()
		raw, err := os.ReadFile(path)
		Expect(err).NotTo(HaveOccurred())
		return string(raw)
	}

	It("has a row for each timeout of the configuration", func() {
		var keys []string
		for _, field := range jsonFields(reflect.TypeFor[Timeouts]()) {
			keys = append(keys, field.name)
		}
		Expect(keys).To(ConsistOf("unschedulable", "request", "create_stemcell", "create_vm", "delete_vm", "attach_disk", "detach_disk", "update_disk", "other"))
		for key := range timeoutDefaults() {
			Expect(keys).To(ContainElement(key))
		}
		Expect(timeoutDefaults()).To(HaveLen(len(keys)))
	})

	It("matches the defaults in the job's spec", func() {
		var spec struct {
			Properties map[string]struct {
				Default any `json:"default"`
			} `json:"properties"`
		}
		Expect(yaml.Unmarshal([]byte(read("../jobs/kubernetes_cpi/spec")), &spec)).To(Succeed())
		found := map[string]string{}
		for name, property := range spec.Properties {
			if key, ok := strings.CutPrefix(name, "timeouts."); ok {
				found[key], _ = property.Default.(string)
			}
		}
		Expect(found).To(Equal(timeoutDefaults()))
	})

	It("matches the keys that the job's template writes to cpi.json", func() {
		list := regexp.MustCompile(`%w\[([^]]*)\]\.each do \|key\|\n {2}config\['timeouts'\]`).
			FindStringSubmatch(read("../jobs/kubernetes_cpi/templates/cpi.json.erb"))
		Expect(list).NotTo(BeNil())
		var keys []string
		for key := range timeoutDefaults() {
			keys = append(keys, key)
		}
		Expect(strings.Fields(list[1])).To(ConsistOf(keys))
	})

	It("matches docs/reference/configuration.md", func() {
		rows := regexp.MustCompile("(?m)^\\| `timeouts\\.(\\w+)` \\|.*\\| `(\\w+)` \\|$").FindAllStringSubmatch(read("../docs/reference/configuration.md"), -1)
		found := map[string]string{}
		for _, row := range rows {
			found[row[1]] = row[2]
		}
		Expect(found).To(Equal(timeoutDefaults()))
	})

	It("returns the timeout for other calls for a method without a row, and for a method named like the request timeout", func() {
		t := defaultTimeouts()
		t.Other = metav1.Duration{Duration: 7 * time.Second}
		Expect(t.forMethod("has_vm")).To(Equal(7 * time.Second))
		Expect(t.forMethod("request")).To(Equal(7 * time.Second))
		Expect(t.forMethod("create_vm")).To(Equal(15 * time.Minute))
	})

	It("returns the longest timeout of a call, without the request timeout", func() {
		t := defaultTimeouts()
		t.Request = metav1.Duration{Duration: 9 * time.Hour}
		Expect(t.Longest()).To(Equal(2 * time.Hour))
	})

	It("reports the first timeout that is not positive", func() {
		t := defaultTimeouts()
		t.DeleteVM, t.CreateVM = metav1.Duration{}, metav1.Duration{}
		Expect(t.Validate()).To(MatchError(ContainSubstring("timeouts.create_vm")))
	})
})
