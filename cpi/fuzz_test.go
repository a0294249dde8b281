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

// errorKinds are the error types that the director and the CLI know.
var errorKinds = []call.ErrorKind{
	call.CPIError, call.CloudError, call.NotSupported, call.NotImplemented, call.VMNotFound, call.VMCreationFailed,
	call.DiskNotFound, call.DiskNotAttached, call.NoDiskSpace,
}

// rejectingServer is the API server of an empty cluster. It rejects and counts requests that would change the cluster.
type rejectingServer struct {
	*httptest.Server
	changes atomic.Int64 // rejected requests
}

func newRejectingServer(f *testing.F) *rejectingServer {
	f.Helper()
	r := &rejectingServer{}
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

// config returns a valid configuration with short timeouts.
func (r *rejectingServer) config() Config {
	config := DefaultConfig()
	config.Agent.Mbus = "nats://nats.test:4222"
	config.Cluster = kube.Options{Namespace: "bosh", Kubeconfig: strings.ReplaceAll(`
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "SERVER"}}]
users: [{name: u, user: {token: SECRET}}]`, "SERVER", r.URL)}
	short := metav1.Duration{Duration: 200 * time.Millisecond}
	config.Timeouts = Timeouts{Request: short, CreateStemcell: short, CreateVM: short, DeleteVM: short, AttachDisk: short,
		DetachDisk: short, Unschedulable: short, Other: short}
	return config
}

// FuzzRequest checks that each request, valid or not, gets exactly one JSON response, with an error type that the director knows. A
// request that is rejected as invalid must not change the cluster. No request may cause a panic, or a secret in the log.
func FuzzRequest(f *testing.F) {
	server := newRejectingServer(f)
	config := server.config()
	for method, arguments := range sampleArguments {
		f.Add([]byte(`{"method":"` + method + `","arguments":` + arguments + `,"context":{"director_uuid":"d-1"},"api_version":2}`))
	}
	for _, unusual := range []string{
		``, `{`, `[]`, `null`, `{"method":null}`, `{"method":"info","arguments":null,"context":null}`,
		`{"method":"has_vm","arguments":["../../nodes/n"],"context":{},"api_version":2}`,
		`{"method":"delete_disk","arguments":["vol-0a1b2c3d4e5f"],"context":{},"api_version":2}`,
		`{"method":"has_vm","arguments":["agent-a;rm -rf /\u0000"],"context":{"request_id":"\n"},"api_version":2}`,
		`{"method":"create_vm","arguments":["a","r/s:1",{"services":[{"ports":["1-9",{"port":1}]}]},{"v":{"type":"vip","ip":"::1","cloud_properties":{"ports":[1]}}},[],{}],"context":{},"api_version":2}`,
		`{"method":"create_vm","arguments":["a","r/s:1",{"memory":"1Ei","resources":{"limits":{"cpu":"1n"}}},{"n":{"type":"manual","ip":"10.0.0.1","netmask":"255.255.255.0"}},[],{}],"context":{},"api_version":2}`,
		`{"method":"info","arguments":[],"context":{"kubernetes":{"kubeconfig":"users: [{name: u, user: {exec: {command: x}}}]"}}}`,
	} {
		f.Add([]byte(unusual))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if accessesHostOrNetwork(raw) {
			t.Skip("the request would access a registry or a file")
		}
		previous := server.changes.Load()
		var out, log bytes.Buffer
		cpiServer := Server{Config: func() (Config, error) { return config, nil }, Log: &log}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second) // a request can contain longer timeouts
		defer cancel()
		if err := cpiServer.Serve(ctx, bytes.NewReader(raw), &out); err != nil {
			t.Fatalf("no response: %v", err)
		}
		decoder := json.NewDecoder(&out)
		decoder.DisallowUnknownFields()
		var got response
		if err := decoder.Decode(&got); err != nil {
			t.Fatalf("the response is not valid: %v", err)
		}
		if _, err := decoder.Token(); err != io.EOF {
			t.Fatal("more than one response")
		}
		if strings.Contains(log.String(), "panic") && !bytes.Contains(raw, []byte("panic")) {
			t.Fatalf("the call panicked: %s", log.String())
		}
		if strings.Contains(log.String(), "SECRET") && !bytes.Contains(raw, []byte("SECRET")) {
			t.Fatal("the log contains a secret")
		}
		if got.Error == nil {
			return
		}
		switch {
		case !slices.Contains(errorKinds, got.Error.Type):
			t.Fatalf("unknown error type %q", got.Error.Type)
		case got.Error.Message == "":
			t.Fatal("the error has no message")
		case got.Error.Type == call.CPIError && server.changes.Load() != previous:
			t.Fatalf("a request that was rejected as invalid sent a change to the cluster: %s", got.Error.Message)
		}
	})
}

// accessesHostOrNetwork reports whether the request may make the CPI read files, or connect to hosts in the request.
func accessesHostOrNetwork(raw []byte) bool {
	var parsed request
	if json.Unmarshal(raw, &parsed) != nil {
		return false
	}
	return strings.Contains(parsed.Method, "stemcell") || bytes.Contains(raw, []byte("kubeconfig")) && bytes.Contains(raw, []byte("server"))
}

// FuzzConfig checks that an error of LoadConfig names the file, and that overrides of a request result in a valid configuration or an
// error.
func FuzzConfig(f *testing.F) {
	server := newRejectingServer(f)
	complete, err := json.Marshal(server.config())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(complete)
	for _, part := range []string{
		``, `[]`, `{"agent":{"mbus":"nats://a:1"}}`, `{"kubernetes":{"kubeconfig":"apiVersion: v1"}}`, `{"kubernetes":{"timeouts":{"create_vm":"-1s"}}}`,
		`{"kubernetes":{"network":{"address_annotations":{"a/b":"{{index .IPs 0}}"}}}}`,
		`{"kubernetes":{"stemcell":{"registry":{"repository":"r/s","password":"p"}}}}`,
		`{"agent":{"mbus":"nats://a:1"},"kubernetes":{"node_image":"r.test/bosh-node@sha256:` + digest + `"}}`,
		`{"kubernetes":{"pods":{"labels":{"a":"b"},"helper_limits":{"cpu":"1"}}}}`,
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
			t.Fatalf("withOverrides returned an invalid configuration: %v", changed.Validate())
		}
	})
}
