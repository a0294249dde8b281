package document_test

import (
	"encoding/json"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"bosh-kubernetes-cpi/kube/document"
)

func TestDocument(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "document")
}

type inner struct {
	StorageClass string `json:"storage_class"`
}

type properties struct {
	Memory      int64                       `json:"memory"`
	Enabled     *bool                       `json:"enabled"`
	Name        string                      `json:"name"`
	Disk        inner                       `json:"disk"`
	List        []inner                     `json:"list"`
	Names       []string                    `json:"names"`
	Annotations map[string]string           `json:"annotations"`
	Resources   corev1.ResourceRequirements `json:"resources"`
	Probe       *corev1.Probe               `json:"probe"`
	Size        size                        `json:"size"`
	Key         []byte                      `json:"key"`
}

// size is a number or a hash.
type size struct {
	MiB  int64  `json:"mib"`
	Unit string `json:"unit"`
}

type sizeHash size

func (*size) Form() string { return "a number or a hash" }
func (*size) Hash() any    { return new(sizeHash) }

func (s *size) UnmarshalJSON(raw []byte) error {
	if raw[0] == '{' {
		return json.Unmarshal(raw, (*sizeHash)(s))
	}
	if err := json.Unmarshal(raw, &s.MiB); err != nil {
		return err
	}
	if s.MiB > 1000 {
		return document.FormError("is too large")
	}
	return nil
}

var _ = Describe("Decode", func() {
	DescribeTable("rejects",
		func(raw, message string) {
			Expect(document.Decode("cloud_properties", []byte(raw), new(properties))).To(MatchError(message))
		},
		Entry("an unknown key", `{"memry":1}`, `cloud_properties: unknown key "memry" (did you mean "memory"?)`),
		Entry("an unknown key in a hash", `{"disk":{"storageclass":"x"}}`, `cloud_properties.disk: unknown key "storageclass" (did you mean "storage_class"?)`),
		Entry("an unknown key in a list", `{"list":[{},{"storage_clas":"x"}]}`,
			`cloud_properties.list[1]: unknown key "storage_clas" (did you mean "storage_class"?)`),
		Entry("an unknown key that is not similar to a known one", `{"zzzzzzzz":1}`, `cloud_properties: unknown key "zzzzzzzz"`),
		Entry("an unknown key of a native structure", `{"probe":{"httpGet":{"prot":80}}}`,
			`cloud_properties.probe.httpGet: unknown key "prot" (did you mean "port"?)`),
		Entry("a key twice", `{"memory":1,"memory":2}`, `cloud_properties: duplicate field "memory"`),
		Entry("a key in different case", `{"Memory":1}`, `cloud_properties: unknown key "Memory" (did you mean "memory"?)`),
		Entry("a string for a number", `{"memory":"much"}`, "cloud_properties.memory must be a whole number, not a string"),
		Entry("a fraction", `{"memory":1.5}`, "cloud_properties.memory must be a whole number"),
		Entry("a number that is too large", `{"memory":1e30}`, "cloud_properties.memory is out of range"),
		Entry("a number for a string", `{"name":1}`, "cloud_properties.name must be a string, not a number; put it in quotes"),
		Entry("an empty string", `{"name":""}`, "cloud_properties.name is empty; remove the key, or set a value"),
		Entry("a boolean in a map", `{"annotations":{"prometheus.io/scrape":true}}`,
			`cloud_properties.annotations["prometheus.io/scrape"] must be a string, not a boolean; put it in quotes`),
		Entry("a hash in a list of strings", `{"names":["a",{"name":"b"}]}`, "cloud_properties.names[1] must be a string, not a hash"),
		Entry("a null in a list", `{"names":[null]}`, "cloud_properties.names[0] must be a string, not null"),
		Entry("a list for a hash", `{"annotations":["a"]}`, "cloud_properties.annotations must be a hash, not a list"),
		Entry("a string for a boolean", `{"enabled":"yes"}`, "cloud_properties.enabled must be true or false, not a string"),
		Entry("an invalid quantity", `{"resources":{"limits":{"memory":"1GB"}}}`, `cloud_properties.resources.limits["memory"] must be a quantity like "500m" or "2Gi"`),
		Entry("an invalid form of a union", `{"size":"x"}`, "cloud_properties.size must be a number or a hash"),
		Entry("a value that the type rejects", `{"size":2000}`, "cloud_properties.size is too large"),
		Entry("an unknown key in a hash of a union", `{"size":{"mb":1}}`, `cloud_properties.size: unknown key "mb" (did you mean "mib"?)`),
		Entry("binary data that is not base64", `{"key":"secret!"}`, "cloud_properties.key must be base64"),
		Entry("a document of another type", `[]`, "cloud_properties must be a hash, not a list"),
		Entry("invalid JSON", "{\n\"memory\": x}", "cloud_properties: is not valid JSON: see line 2"),
		Entry("several problems at once", `{"memory":"x","naem":"y","names":1}`,
			`cloud_properties.memory must be a whole number, not a string; cloud_properties: unknown key "naem" (did you mean "name"?); `+
				`cloud_properties.names must be a list, not a number`),
	)

	DescribeTable("accepts",
		func(raw string, expected properties) {
			decoded := properties{Name: "default"}
			Expect(document.Decode("x", []byte(raw), &decoded)).To(Succeed())
			Expect(decoded).To(Equal(expected))
		},
		Entry("empty input", ``, properties{Name: "default"}),
		Entry("null, as an empty hash", `null`, properties{Name: "default"}),
		Entry("null, as a missing key", `{"memory":null,"name":null,"size":null,"annotations":{"a":null},"disk":{"storage_class":null}}`,
			properties{Name: "default", Annotations: map[string]string{}}),
		Entry("a whole number with a decimal point", `{"memory":4096.0}`, properties{Name: "default", Memory: 4096}),
		Entry("an empty value in a map", `{"annotations":{"a":""}}`, properties{Name: "default", Annotations: map[string]string{"a": ""}}),
		Entry("the forms of a union", `{"size":{"mib":7}}`, properties{Name: "default", Size: size{MiB: 7}}),
	)

	It("returns no value of the document", func() {
		for _, raw := range []string{
			`{"memory":"s3cret"}`, `{"names":{"s3cret":"s3cret"}}`, `{"key":"s3cret!"}`, `{"annotations":"s3cret"}`, `{"name":"s3cret`,
			`{"name":"s3cret" s3cret}`, `s3cret`, `"s3cret"`, `{"size":"s3cret"}`, `{"resources":{"limits":{"cpu":"s3cret"}}}`,
		} {
			Expect(document.Decode("x", []byte(raw), new(properties))).To(MatchError(Not(ContainSubstring("s3cret"))), raw)
		}
	})
})

var _ = Describe("DecodeKnown", func() {
	It("ignores unknown keys", func() {
		var decoded properties
		Expect(document.DecodeKnown("x", []byte(`{"name":"a","other":{"name":1}}`), &decoded)).To(Succeed())
		Expect(decoded.Name).To(Equal("a"))
	})

	It("accepts empty strings", func() {
		Expect(document.DecodeKnown("x", []byte(`{"name":""}`), new(properties))).To(Succeed())
	})

	It("accepts null for a pointer, a map and a list", func() {
		var optional *string
		var labels map[string]string
		var names []string
		for _, into := range []any{&optional, &labels, &names} {
			Expect(document.DecodeKnown("argument 3", []byte(`null`), into)).To(Succeed())
		}
		Expect(optional).To(BeNil())
	})

	It("rejects a root of another type", func() {
		var text string
		Expect(document.DecodeKnown("argument 1", []byte(`null`), &text)).To(MatchError("argument 1 must be a string, not null"))
		Expect(document.DecodeKnown("argument 1", []byte(`[1]`), &text)).To(MatchError("argument 1 must be a string, not a list"))
	})
})

var _ = Describe("Unmarshal", func() {
	It("ignores the case of keys, like encoding/json", func() {
		var decoded properties
		Expect(document.Unmarshal("x", []byte(`{"NAME": "a"}`), &decoded)).To(Succeed())
		Expect(decoded.Name).To(Equal("a"))
	})

	DescribeTable("never accepts what encoding/json rejects:", func(raw, message string) {
		Expect(document.Unmarshal("x", []byte(raw), new(properties))).To(MatchError(message))
	},
		Entry(nil, " ", "x: is empty"),
		Entry(nil, "{", "x: is not valid JSON: see line 1"),
		Entry(nil, `{"name": 1}`, "x.name must be a string, not a number; put it in quotes"),
		Entry(nil, `{"NAME": 1}`, "x: is not valid"),
		Entry(nil, "[]", "x must be a hash, not a list"),
	)
})

var _ = Describe("MisspelledKey", func() {
	It("returns a key with few other letters", func() {
		Expect(document.MisspelledKey(properties{}, "annotation")).To(Equal("annotations"))
		Expect(document.MisspelledKey(properties{}, strings.Repeat("x", 8))).To(BeEmpty())
	})
})
