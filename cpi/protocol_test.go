package cpi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/test/harness/stemcells"
)

// sampleArguments are arguments of each method, as the director sends them.
var sampleArguments = map[string]string{
	"info":                          `[]`,
	"create_stemcell":               `["/dev/null", {"image_reference": "registry.example.com/stemcell@sha256:` + strings.Repeat("0", 64) + `"}]`,
	"delete_stemcell":               `["registry.example.com/stemcell@sha256:` + strings.Repeat("0", 64) + `"]`,
	"calculate_vm_cloud_properties": `[{"cpu": 1, "ram": 1024, "ephemeral_disk_size": 1024}]`,
	"create_vm":                     `["a-1", "registry.example.com/stemcell:1", {"cpu": 1}, {"n": {"type": "dynamic"}}, ["disk-1"], {"bosh": {"group": "g"}}]`,
	"delete_vm":                     `["agent-a-1"]`,
	"has_vm":                        `["agent-a-1"]`,
	"reboot_vm":                     `["agent-a-1"]`,
	"set_vm_metadata":               `["agent-a-1", {"deployment": "d"}]`,
	"attach_disk":                   `["agent-a-1", "disk-1"]`,
	"detach_disk":                   `["agent-a-1", "disk-1"]`,
	"get_disks":                     `["agent-a-1"]`,
	"create_disk":                   `[1024, {"volume_mode": "Block"}, "agent-a-1"]`,
	"delete_disk":                   `["disk-1"]`,
	"has_disk":                      `["disk-1"]`,
	"set_disk_metadata":             `["disk-1", {"deployment": "d"}]`,
	"resize_disk":                   `["disk-1", 2048]`,
	"update_disk":                   `["disk-1", 2048, {}]`,
	"snapshot_disk":                 `["disk-1", {"deployment": "d"}]`,
	"delete_snapshot":               `["snapshot-1"]`,
}

// unreachableCPI is a CPI that cannot reach its API server: no process listens on port 1, which is reserved (tcpmux). A port that was just
// closed may be in use by another process.
type unreachableCPI struct {
	config    Config
	configErr error // error of the configuration
	log       bytes.Buffer
}

func newUnreachableCPI() *unreachableCPI {
	u := &unreachableCPI{config: DefaultConfig()}
	u.config.Agent.Mbus, u.config.NodeImage = "nats://nats.test:4222", stemcells.NodeImageReference
	u.config.Timeouts.Request = metav1.Duration{Duration: time.Millisecond}
	u.config.Cluster = kube.Options{Namespace: "bosh", Kubeconfig: `
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: SECRET}}]`}
	return u
}

// response is a response of the protocol; all keys are required.
type response struct {
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Type    call.ErrorKind `json:"type"`
		Message string         `json:"message"`
		Retry   *bool          `json:"ok_to_retry"`
	} `json:"error"`
	Log *string `json:"log"`
}

// send returns the response to a request.
func (u *unreachableCPI) send(method, arguments string) response {
	GinkgoHelper()
	return u.sendRaw(fmt.Sprintf(`{"method":%q,"arguments":%s,"context":{"director_uuid":"d-1"},"api_version":2}`, method, arguments))
}

func (u *unreachableCPI) sendRaw(request string) response {
	GinkgoHelper()
	server := Server{Config: func() (Config, error) { return u.config, u.configErr }, Log: &u.log}
	var out bytes.Buffer
	Expect(server.Serve(context.Background(), strings.NewReader(request), &out)).To(Succeed())
	decoder := json.NewDecoder(&out)
	decoder.DisallowUnknownFields()
	var got response
	Expect(decoder.Decode(&got)).To(Succeed())
	Expect(decoder.More()).To(BeFalse(), "more than one document")
	Expect(got.Log).NotTo(BeNil())
	if got.Error != nil {
		Expect(got.Error.Retry).NotTo(BeNil())
	}
	return got
}

// registerMethod adds a method to the table until the spec ends.
func registerMethod(name string, function any) {
	methods[name] = method{handler: func(*requestSession) any { return function }}
	DeferCleanup(func() { delete(methods, name) })
}

var _ = Describe("The protocol", func() {
	It("has sample arguments for each method", func() {
		for name := range methods {
			Expect(sampleArguments).To(HaveKey(name))
		}
		Expect(sampleArguments).To(HaveLen(len(methods)))
	})

	for name, arguments := range sampleArguments {
		Describe(name, func() {
			It("rejects a wrong number of arguments", func() {
				var valid []json.RawMessage
				Expect(json.Unmarshal([]byte(arguments), &valid)).To(Succeed())
				for _, wrong := range []any{append(slices.Clone(valid), json.RawMessage("1")), append([]json.RawMessage{}, valid[:max(0, len(valid)-1)]...)} {
					raw, err := json.Marshal(wrong)
					Expect(err).NotTo(HaveOccurred())
					if string(raw) == "[]" && len(valid) == 0 {
						continue
					}
					got := newUnreachableCPI().send(name, string(raw))
					Expect(got.Error.Type).To(Equal(call.CPIError))
					Expect(got.Error.Message).To(ContainSubstring("takes %d arguments", len(valid)))
				}
			})

			It("is not supported in other API versions, unless it is info, which the director and the CLI call first", func() {
				for version, extra := range map[int]string{0: "", 1: `,"api_version":1`, 3: `,"api_version":3`} {
					got := newUnreachableCPI().sendRaw(fmt.Sprintf(`{"method":%q,"arguments":%s,"context":{}%s}`, name, arguments, extra))
					if name == "info" {
						Expect(got.Error).To(BeNil())
						continue
					}
					Expect(got.Error.Type).To(Equal(call.NotSupported))
					Expect(got.Error.Message).To(And(ContainSubstring("api_version %d is not supported", max(version, 1)), HaveSuffix("[api-version-unsupported]")))
				}
			})

			It("fails for an invalid configuration", func() {
				u := newUnreachableCPI()
				u.configErr = errors.New("cpi.json: the cause")
				got := u.send(name, arguments)
				Expect(got.Error.Type).To(Equal(call.CPIError))
				Expect(got.Error.Message).To(ContainSubstring("cpi.json: the cause"))
			})

			It("reports an unreachable API server, unless it does not need the cluster", func() {
				got := newUnreachableCPI().send(name, arguments)
				if !methods[name].needsCluster {
					Expect(got.Error).To(BeNil())
					return
				}
				Expect(got.Result).To(MatchJSON("null"))
				Expect(got.Error.Type).To(Or(Equal(call.CloudError), Equal(call.VMCreationFailed)))
				Expect(got.Error.Message).To(ContainSubstring("cannot reach the Kubernetes API server"))
			})
		})
	}

	It("returns an error with its type and code, also if it is wrapped", func() {
		for _, code := range call.Codes {
			for _, wrapped := range []error{
				code.Errorf("the cause"),
				fmt.Errorf("more: %w", code.Errorf("the cause")),
				call.CodeVMCreateFailed.Errorf("more: %w", code.Errorf("the cause")),
				errors.Join(code.Errorf("the cause"), call.CodeDiskNotFound.Errorf("of the rollback")),
			} {
				registerMethod("test_error", func() error { return wrapped })
				got := newUnreachableCPI().send("test_error", "[]")
				Expect(got.Error.Type).To(Or(Equal(code.Kind), Equal(call.VMCreationFailed)))
				Expect(got.Error.Message).To(MatchRegexp(`the cause(?s:.*) \[%s\]$`, code.Name))
				Expect(*got.Error.Retry).To(BeFalse())
			}
		}
	})

	It("returns an error of a program on a node with the code of that program", func() {
		registerMethod("test_error", func() error {
			return call.CodeDiskAttachFailed.Errorf("cannot attach disk disk-1: %s", "blank [volume-blank]")
		})
		Expect(newUnreachableCPI().send("test_error", "[]").Error.Message).To(Equal("cannot attach disk disk-1: blank [volume-blank]"))
	})

	DescribeTable("returns an error of the cluster as a CloudError with the remedy",
		func(kind error, message string) {
			registerMethod("test_error", func() error { return &kube.Error{Action: "get Pod bosh/a", Kind: kind, Err: errors.New("words")} })
			got := newUnreachableCPI().send("test_error", "[]")
			Expect(got.Error.Type).To(Equal(call.CloudError))
			Expect(got.Error.Message).To(And(ContainSubstring(message), ContainSubstring("get Pod bosh/a: words")))
		},
		Entry("unreachable", kube.ErrUnreachable, "check kubernetes.kubeconfig"),
		Entry("not served", kube.ErrNotServed, "[api-not-kubernetes]"),
		Entry("failing webhook", kube.ErrWebhook, "check the webhook that this message names"),
		Entry("missing credentials", kube.ErrNoCredentials, "correct the user in kubernetes.kubeconfig"),
		Entry("rejected credentials", kube.ErrUnauthorized, "rejected the CPI's credentials"),
		Entry("denied", kube.ErrDenied, "check the CPI's Role"),
		Entry("any other", kube.ErrConflict, "words"),
	)

	DescribeTable("rejects a malformed request with a code",
		func(request, problem string) {
			got := newUnreachableCPI().sendRaw(request)
			Expect(got.Error.Type).To(Equal(call.CPIError))
			Expect(got.Error.Message).To(And(HavePrefix(problem), HaveSuffix("[invalid-request]")))
		},
		Entry("invalid JSON", `{`, "request: is not valid JSON: see line 1; a request is a JSON document like {"),
		Entry("no method", `{"arguments":[]}`, "request: method is missing"),
		Entry("no arguments", `{"method":"info"}`, "request: arguments are missing"),
		Entry("an api_version that is not a number", `{"method":"info","arguments":[],"api_version":"2"}`, "request.api_version must be a whole number, not a string"),
		Entry("a context that is not a hash", `{"method":"info","arguments":[],"context":[]}`, "request.context must be a hash, not a list"),
		Entry("a number that is too large", `{"method":"info","arguments":[1e999]}`, "request: has a number that is out of range"),
	)

	It("marks a create_vm that may be retried", func() {
		registerMethod("test_error", func() error { return call.CodeVMCreateFailed.Wrap(errors.New("x"), true) })
		Expect(*newUnreachableCPI().send("test_error", "[]").Error.Retry).To(BeTrue())
	})

	It("returns null for no result, and a list for several results", func() {
		registerMethod("test_none", func() error { return nil })
		registerMethod("test_two", func() (string, int, error) { return "a", 2, nil })
		Expect(newUnreachableCPI().send("test_none", "[]").Result).To(MatchJSON("null"))
		Expect(newUnreachableCPI().send("test_two", "[]").Result).To(MatchJSON(`["a", 2]`))
	})

	It("keeps all digits of an integer", func() {
		registerMethod("test_number", func(n int64) (int64, error) { return n, nil })
		Expect(newUnreachableCPI().send("test_number", "[9007199254740993]").Result).To(MatchJSON("9007199254740993"))
	})

	It("returns a panic as an error, and writes the stack trace only to the log", func() {
		registerMethod("test_panic", func() error { panic("the cause") })
		u := newUnreachableCPI()
		got := u.send("test_panic", "[]")
		Expect(got.Error.Type).To(Equal(call.CPIError))
		Expect(got.Error.Message).To(ContainSubstring("the cause"))
		Expect(got.Error.Message).NotTo(ContainSubstring("goroutine"))
		Expect(u.log.String()).To(ContainSubstring("goroutine"))
	})

	It("returns NotImplemented for an unknown method", func() {
		Expect(newUnreachableCPI().send("make_coffee", "[]").Error.Type).To(BeEquivalentTo("Bosh::Clouds::NotImplemented"))
	})

	It("writes no secret to the log at debug", func() {
		u := newUnreachableCPI()
		u.config.Log.Level = "debug"
		arguments := `["a-1", "registry.example.com/stemcell:1", {}, {"n": {"type": "dynamic"}}, [], {"bosh": {"password": "SECRET"}}]`
		u.send("create_vm", arguments)
		Expect(u.log.String()).To(ContainSubstring("create_vm"))
		Expect(u.log.String()).NotTo(ContainSubstring("SECRET"))
	})
})
