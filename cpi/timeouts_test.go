package cpi

import (
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	It("has a row for each timeout of the configuration", func() {
		var keys []string
		for _, field := range jsonFields(reflect.TypeFor[Timeouts]()) {
			keys = append(keys, field.name)
		}
		Expect(slices.Collect(maps.Keys(timeoutDefaults()))).To(ConsistOf(keys))
	})

	It("matches docs/reference/configuration.md", func() {
		page, err := os.ReadFile("../docs/reference/configuration.md")
		Expect(err).NotTo(HaveOccurred())
		rows := regexp.MustCompile("(?m)^\\| `kubernetes\\.timeouts\\.(\\w+)` \\|.*\\| `(\\w+)` \\|$").FindAllStringSubmatch(string(page), -1)
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
		Expect(t.Longest()).To(Equal(30 * time.Minute))
	})

	It("reports the first timeout that is not positive", func() {
		t := defaultTimeouts()
		t.DeleteVM, t.CreateVM = metav1.Duration{}, metav1.Duration{}
		Expect(t.Validate()).To(MatchError(ContainSubstring("kubernetes.timeouts.create_vm")))
	})
})
