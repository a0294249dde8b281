package cpi

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/kube"
)

// errorKinds are all that the director and the CLI know.
var errorKinds = []call.ErrorKind{
	call.CPIError, call.CloudError, call.NotSupported, call.NotImplemented, call.VMNotFound, call.VMCreationFailed,
	call.NetworkNotFound, call.DiskNotFound, call.DiskNotAttached, call.NoDiskSpace, call.StemcellNotFound,
}

// refusingServer is an API server of an empty cluster that allows no change; it counts what is tried.
type refusingServer struct {
	*httptest.Server
	changes atomic.Int64
}

func newRefusingServer(f *testing.F) *refusingServer {
	f.Helper()
	r := &refusingServer{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		status := metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure}
		status.Code, status.Reason = http.StatusNotFound, metav1.StatusReasonNotFound
		if request.Method != http.MethodGet {
			r.changes.Add(1)
			status.Code, status.Reason = http.StatusForbidden, metav1.StatusReasonForbidden
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(status.Code))
		_ = json.NewEncoder(w).Encode(status)
	}))
	f.Cleanup(r.Close)
	return r
}

// config is one that is complete, with timeouts for tests.
func (r *refusingServer) config() Config {
	config := DefaultConfig()
	config.Agent.Mbus = "nats://nats.test:4222"
	config.Kubernetes = kube.Options{Namespace: "bosh", Kubeconfig: strings.ReplaceAll(`
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "SERVER"}}]
users: [{name: u, user: {token: SECRET}}]`, "SERVER", r.URL)}
	short := metav1.Duration{Duration: 200 * time.Millisecond}
	config.Timeouts = Timeouts{Request: short, CreateStemcell: short, CreateVM: short, DeleteVM: short, AttachDisk: short,
		DetachDisk: short, UpdateDisk: short, Unschedulable: short, Other: short}
	return config
}

// Whatever is sent is answered with one JSON document whose error, if there is one, has a type that the director knows; a
// request that cannot be meant changes nothing, and nothing makes the program stumble or tells a secret.
func FuzzRequest(f *testing.F) {
	server := newRefusingServer(f)
	config := server.config()
	for method, arguments := range sampleArguments {
		f.Add([]byte(`{"method":"` + method + `","arguments":` + arguments + `,"context":{"director_uuid":"d-1"},"api_version":2}`))
	}
	for _, odd := range []string{
		``, `{`, `[]`, `null`, `{"method":null}`, `{"method":"info","arguments":null,"context":null}`,
		`{"method":"has_vm","arguments":["../../nodes/n"],"context":{}}`,
		`{"method":"delete_disk","arguments":["vol-0a1b2c3d4e5f"],"context":{}}`,
		`{"method":"has_vm","arguments":["agent-a;rm -rf /\u0000"],"context":{"request_id":"\n"}}`,
		`{"method":"create_vm","arguments":["a","r/s:1",{"services":[{"ports":["1-9",{"port":1}]}]},{"v":{"type":"vip","ip":"::1","cloud_properties":{"ports":[1]}}},[],{}],"context":{}}`,
		`{"method":"create_vm","arguments":["a","r/s:1",{"memory":"1Ei","resources":{"limits":{"cpu":"1n"}}},{"n":{"type":"manual","ip":"10.0.0.1","netmask":"255.255.255.0"}},[],{}],"context":{}}`,
		`{"method":"info","arguments":[],"context":{"kubernetes":{"kubeconfig":"users: [{name: u, user: {exec: {command: x}}}]"}}}`,
	} {
		f.Add([]byte(odd))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if accessesHostOrNetwork(raw) {
			t.Skip("it would ask a registry, or read a file")
		}
		previous := server.changes.Load()
		var out, log bytes.Buffer
		serving := Server{Config: func() (Config, error) { return config, nil }, Log: &log}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second) // a request can ask for longer timeouts
		defer cancel()
		if err := serving.Serve(ctx, bytes.NewReader(raw), &out); err != nil {
			t.Fatalf("no answer: %v", err)
		}
		decoder := json.NewDecoder(&out)
		decoder.DisallowUnknownFields()
		var got response
		if err := decoder.Decode(&got); err != nil {
			t.Fatalf("the answer is not JSON: %v", err)
		}
		if _, err := decoder.Token(); err != io.EOF {
			t.Fatal("there is more than one answer")
		}
		if strings.Contains(log.String(), "panic") && !bytes.Contains(raw, []byte("panic")) {
			t.Fatalf("it stumbled: %s", log.String())
		}
		if strings.Contains(log.String(), "SECRET") && !bytes.Contains(raw, []byte("SECRET")) {
			t.Fatal("the log tells a secret")
		}
		if got.Error == nil {
			return
		}
		switch {
		case !slices.Contains(errorKinds, got.Error.Type):
			t.Fatalf("nobody knows errors of type %q", got.Error.Type)
		case got.Error.Message == "":
			t.Fatal("the error says nothing")
		case got.Error.Type == call.CPIError && server.changes.Load() != previous:
			t.Fatalf("a request that is refused was tried: %s", got.Error.Message)
		}
	})
}

// accessesHostOrNetwork reports whether the request would have the CPI look at files, or ask hosts that it names.
func accessesHostOrNetwork(raw []byte) bool {
	var parsed request
	if json.Unmarshal(raw, &parsed) != nil {
		return false
	}
	return strings.Contains(parsed.Method, "stemcell") || bytes.Contains(raw, []byte("kubeconfig")) && bytes.Contains(raw, []byte("server"))
}

// A configuration is taken, or refused by an error that names its file; a request can replace parts of it likewise.
func FuzzConfig(f *testing.F) {
	server := newRefusingServer(f)
	complete, err := json.Marshal(server.config())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(complete)
	for _, part := range []string{
		``, `[]`, `{"agent":{"mbus":"nats://a:1"}}`, `{"kubernetes":{"kubeconfig":"apiVersion: v1"}}`, `{"timeouts":{"create_vm":"-1s"}}`,
		`{"network":{"address_annotations":{"a/b":"{{index .IPs 0}}"}}}`, `{"stemcell":{"registry":{"repository":"r/s","password":"p"}}}`,
		`{"pods":{"labels":{"a":"b"},"helper_limits":{"cpu":"1"}}}`,
	} {
		f.Add([]byte(part))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		path := filepath.Join(t.TempDir(), "cpi.json")
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		config, err := LoadConfig(path)
		if err != nil {
			if !strings.Contains(err.Error(), path) {
				t.Fatalf("the error does not name the file: %v", err)
			}
			return
		}
		if changed, err := config.withOverrides(raw); err == nil && changed.Validate() != nil {
			t.Fatalf("a request made the configuration one that is refused: %v", changed.Validate())
		}
	})
}
