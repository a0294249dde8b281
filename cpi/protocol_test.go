package cpi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
)

// sampleArguments are arguments as the director sends them, for each method.
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
	"create_network":                `[{"type": "manual", "range": "10.9.0.0/16", "cloud_properties": {"calico": "ip_pool"}}]`,
	"delete_network":                `["bosh-pool-10-9-0-0-16"]`,
}

// unreachableCPI is a CPI whose API server's port nobody listens at.
type unreachableCPI struct {
	config Config
	broken error // in the operator's configuration
	log    bytes.Buffer
}

func newUnreachableCPI() *unreachableCPI {
	GinkgoHelper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	Expect(listener.Close()).To(Succeed())
	w := &unreachableCPI{config: DefaultConfig()}
	w.config.Agent.Mbus = "nats://nats.test:4222"
	w.config.Timeouts.Request = metav1.Duration{Duration: time.Millisecond}
	w.config.Kubernetes = kube.Options{Namespace: "bosh", Kubeconfig: fmt.Sprintf(`
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://%s"}}]
users: [{name: u, user: {token: SECRET}}]`, listener.Addr())}
	return w
}

// response is what the wire carries; all keys are required.
type response struct {
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Type    call.ErrorKind `json:"type"`
		Message string         `json:"message"`
		Retry   *bool          `json:"ok_to_retry"`
	} `json:"error"`
	Log *string `json:"log"`
}

// send returns the response to the request; more is added to it at its top level.
func (w *unreachableCPI) send(method, arguments, extra string) response {
	GinkgoHelper()
	request := fmt.Sprintf(`{"method":%q,"arguments":%s,"context":{"director_uuid":"d-1"}%s}`, method, arguments, extra)
	server := Server{Config: func() (Config, error) { return w.config, w.broken }, Log: &w.log}
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

// registerMethod adds a method to the table for as long as the spec runs.
func registerMethod(name string, function any) {
	methods[name] = method{handler: func(*requestSession) any { return function }}
	DeferCleanup(func() { delete(methods, name) })
}

var _ = Describe("On the wire", func() {
	It("there is a sample of each method", func() {
		for name := range methods {
			Expect(sampleArguments).To(HaveKey(name))
		}
		Expect(sampleArguments).To(HaveLen(len(methods)))
	})

	for name, arguments := range sampleArguments {
		Describe(name, func() {
			It("says which argument is too many, and which is missing", func() {
				var given []json.RawMessage
				Expect(json.Unmarshal([]byte(arguments), &given)).To(Succeed())
				for _, wrong := range []any{append(slices.Clone(given), json.RawMessage("1")), append([]json.RawMessage{}, given[:max(0, len(given)-1)]...)} {
					raw, err := json.Marshal(wrong)
					Expect(err).NotTo(HaveOccurred())
					if string(raw) == "[]" && len(given) == 0 {
						continue
					}
					got := newUnreachableCPI().send(name, string(raw), "")
					Expect(got.Error.Type).To(Equal(call.CPIError))
					Expect(got.Error.Message).To(ContainSubstring("takes %d arguments", len(given)))
				}
			})

			It("is refused for a version of the API that is not known yet, and with a broken configuration", func() {
				w := newUnreachableCPI()
				got := w.send(name, arguments, `,"api_version":3`)
				Expect(got.Error.Type).To(Equal(call.CPIError))
				Expect(got.Error.Message).To(ContainSubstring("api_version 3"))
				w.broken = errors.New("cpi.json: what is wrong with it")
				got = w.send(name, arguments, "")
				Expect(got.Error.Type).To(Equal(call.CPIError))
				Expect(got.Error.Message).To(ContainSubstring("what is wrong with it"))
			})

			It("needs the API server, and says that it cannot be reached, or needs none", func() {
				for _, version := range []string{"", `,"api_version":2`} {
					got := newUnreachableCPI().send(name, arguments, version)
					if !methods[name].needsCluster {
						Expect(got.Error).To(BeNil())
						continue
					}
					Expect(got.Result).To(MatchJSON("null"))
					Expect(got.Error.Type).To(Or(Equal(call.CloudError), Equal(call.VMCreationFailed)))
					Expect(got.Error.Message).To(ContainSubstring("the Kubernetes API server cannot be reached"))
				}
			})
		})
	}

	DescribeTable("each kind of error leaves with its name, however it is wrapped",
		func(kind call.ErrorKind) {
			for _, wrapped := range []error{
				kind.Errorf("the cause"),
				fmt.Errorf("more: %w", kind.Errorf("the cause")),
				errors.Join(kind.Errorf("the cause"), call.DiskNotFound.Errorf("of the undo")),
			} {
				registerMethod("test_error", func() error { return wrapped })
				got := newUnreachableCPI().send("test_error", "[]", "")
				Expect(got.Error.Type).To(Equal(kind))
				Expect(got.Error.Message).To(ContainSubstring("the cause"))
				Expect(*got.Error.Retry).To(BeFalse())
			}
		},
		Entry(nil, call.CPIError), Entry(nil, call.CloudError), Entry(nil, call.NotSupported), Entry(nil, call.NotImplemented), Entry(nil, call.VMNotFound),
		Entry(nil, call.VMCreationFailed), Entry(nil, call.NetworkNotFound), Entry(nil, call.DiskNotFound),
		Entry(nil, call.DiskNotAttached), Entry(nil, call.NoDiskSpace), Entry(nil, call.StemcellNotFound),
	)

	DescribeTable("an error of the cluster's leaves as a CloudError with what to do",
		func(kind error, message string) {
			registerMethod("test_error", func() error { return &kube.Error{Action: "get Pod bosh/a", Kind: kind, Err: errors.New("words")} })
			got := newUnreachableCPI().send("test_error", "[]", "")
			Expect(got.Error.Type).To(Equal(call.CloudError))
			Expect(got.Error.Message).To(And(ContainSubstring(message), ContainSubstring("get Pod bosh/a: words")))
		},
		Entry("unreachable", kube.ErrUnreachable, "check kubernetes.kubeconfig"),
		Entry("not served", kube.ErrNotServed, "proxies before it"),
		Entry("a webhook", kube.ErrWebhook, "check the webhook that the message names"),
		Entry("no credentials", kube.ErrNoCredentials, "correct the user's entry in kubernetes.kubeconfig"),
		Entry("credentials that are not accepted", kube.ErrUnauthorized, "does not know the CPI by its credentials"),
		Entry("refused", kube.ErrRefused, "check the CPI's Role"),
		Entry("any other", kube.ErrConflict, "words"),
	)

	It("a create_vm that may be tried again says so", func() {
		registerMethod("test_error", func() error { return call.VMCreationFailed.Wrap(errors.New("x"), true) })
		Expect(*newUnreachableCPI().send("test_error", "[]", "").Error.Retry).To(BeTrue())
	})

	It("a method without a result answers null, one with several a list", func() {
		registerMethod("test_none", func() error { return nil })
		registerMethod("test_two", func() (string, int, error) { return "a", 2, nil })
		Expect(newUnreachableCPI().send("test_none", "[]", "").Result).To(MatchJSON("null"))
		Expect(newUnreachableCPI().send("test_two", "[]", "").Result).To(MatchJSON(`["a", 2]`))
	})

	It("a number keeps all its digits", func() {
		registerMethod("test_number", func(n int64) (int64, error) { return n, nil })
		Expect(newUnreachableCPI().send("test_number", "[9007199254740993]", "").Result).To(MatchJSON("9007199254740993"))
	})

	It("a panic is an answer, and its stack is in the log alone", func() {
		registerMethod("test_panic", func() error { panic("a defect") })
		w := newUnreachableCPI()
		got := w.send("test_panic", "[]", "")
		Expect(got.Error.Type).To(Equal(call.CPIError))
		Expect(got.Error.Message).To(ContainSubstring("a defect"))
		Expect(got.Error.Message).NotTo(ContainSubstring("goroutine"))
		Expect(w.log.String()).To(ContainSubstring("goroutine"))
	})

	It("a method that is not known is NotImplemented", func() {
		Expect(newUnreachableCPI().send("make_coffee", "[]", "").Error.Type).To(BeEquivalentTo("Bosh::Clouds::NotImplemented"))
	})

	It("no secret reaches the log, at its most talkative", func() {
		w := newUnreachableCPI()
		w.config.Log.Level = "debug"
		arguments := `["a-1", "registry.example.com/stemcell:1", {}, {"n": {"type": "dynamic"}}, [], {"bosh": {"password": "SECRET"}}]`
		w.send("create_vm", arguments, "")
		Expect(w.log.String()).To(ContainSubstring("create_vm"))
		Expect(w.log.String()).NotTo(ContainSubstring("SECRET"))
	})
})
