package main_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// call is one run of the shim by a container runtime.
type call struct {
	Command, Version string
	Args             string         // CNI_ARGS
	Kubeconfig       string         // path
	Shim             map[string]any // additional configuration of the shim
	Delegate         map[string]any // additional configuration of the delegate
	Test             map[string]any // behavior of the delegate; see testdelegate
	Path             string         // CNI_PATH, by default the plugins of the tests
	Timeout          string         // for the API server, by default long enough for a busy host

	dir string
}

func newCall(command, version, pod string) call {
	dir := GinkgoT().TempDir()
	return call{
		Command: command, Version: version, Args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=" + namespace + ";K8S_POD_NAME=" + pod,
		Kubeconfig: writeAccountKubeconfig(dir), Path: pluginDir, Timeout: "1m", dir: dir,
		Shim: map[string]any{}, Delegate: map[string]any{}, Test: map[string]any{},
	}
}

func (c call) recordPath() string { return filepath.Join(c.dir, "calls") }

// stdinConfig returns the configuration that a runtime derives from a network configuration for this call.
func (c call) stdinConfig() []byte {
	test := map[string]any{"record": c.recordPath()}
	maps.Copy(test, c.Test)
	delegate := map[string]any{"type": "testdelegate", "test": test, "mtu": 1400}
	maps.Copy(delegate, c.Delegate)
	entry := map[string]any{
		"type": "bosh-cni-shim", "name": "net", "cniVersion": c.Version, "delegate": delegate,
		"kubernetes": map[string]any{"kubeconfig": c.Kubeconfig, "timeout": c.Timeout},
	}
	switch c.Command {
	case "DEL", "CHECK":
		entry["prevResult"] = map[string]any{"cniVersion": c.Version, "ips": []any{}}
	case "GC":
		entry["cni.dev/valid-attachments"] = []any{map[string]any{"containerID": "c1", "ifname": "eth0"}}
	}
	maps.Copy(entry, c.Shim)
	raw, err := json.Marshal(entry)
	Expect(err).NotTo(HaveOccurred())
	return raw
}

// outcome is the exit status and the output of the shim.
type outcome struct {
	Status         int
	Stdout, Stderr string
}

func (c call) run() outcome {
	command := exec.Command(program)
	command.Env = []string{
		"PATH=" + os.Getenv("PATH"), "CNI_COMMAND=" + c.Command, "CNI_CONTAINERID=c1", "CNI_NETNS=/run/netns/none",
		"CNI_IFNAME=eth0", "CNI_ARGS=" + c.Args, "CNI_PATH=" + c.Path,
	}
	command.Stdin = bytes.NewReader(c.stdinConfig())
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		Expect(err).NotTo(HaveOccurred())
	}
	return outcome{command.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// errorDocument is an error as in section 5 of the specification.
type errorDocument struct {
	CNIVersion, Msg, Details string
	Code                     uint
}

// expectError expects an error document and exit status 1.
func (o outcome) expectError() errorDocument {
	GinkgoHelper()
	Expect(o.Status).To(Equal(1), o.Stdout)
	decoder := json.NewDecoder(strings.NewReader(o.Stdout))
	var d errorDocument
	Expect(decoder.Decode(&d)).To(Succeed(), o.Stdout)
	Expect(decoder.More()).To(BeFalse(), "more than one document: %s", o.Stdout)
	return d
}

// ips expects a result, and returns its addresses with prefix lengths.
func (o outcome) ips() []string {
	GinkgoHelper()
	Expect(o.Status).To(BeZero(), o.Stdout)
	var result struct {
		IPs []struct{ Address string } `json:"ips"`
	}
	Expect(json.Unmarshal([]byte(o.Stdout), &result)).To(Succeed(), o.Stdout)
	var ips []string
	for _, ip := range result.IPs {
		ips = append(ips, ip.Address)
	}
	return ips
}

// delegateCall is a recorded call of the delegate.
type delegateCall struct {
	Command, Args, ContainerID, NetNS, IfName string
	Stdin                                     map[string]any
}

func (c call) delegateCalls() []delegateCall {
	GinkgoHelper()
	raw, err := os.ReadFile(c.recordPath())
	if os.IsNotExist(err) {
		return nil
	}
	Expect(err).NotTo(HaveOccurred())
	var calls []delegateCall
	for line := range strings.Lines(string(raw)) {
		var entry delegateCall
		Expect(json.Unmarshal([]byte(line), &entry)).To(Succeed())
		calls = append(calls, entry)
	}
	return calls
}

// writeKubeconfig writes a kubeconfig with the server and the token, and returns its path.
func writeKubeconfig(dir, server, token, caData string) string {
	cluster := map[string]any{"server": server}
	if caData != "" {
		cluster["certificate-authority-data"] = []byte(caData)
	}
	raw, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": []any{map[string]any{"name": "c", "cluster": cluster}},
		"users":    []any{map[string]any{"name": "u", "user": map[string]any{"token": token}}},
		"contexts": []any{map[string]any{"name": "c", "context": map[string]any{"cluster": "c", "user": "u"}}},
	})
	Expect(err).NotTo(HaveOccurred())
	path := filepath.Join(dir, "kubeconfig")
	Expect(os.WriteFile(path+".new", raw, 0o600)).To(Succeed())
	Expect(os.Rename(path+".new", path)).To(Succeed())
	return path
}

func writeAccountKubeconfig(dir string) string {
	token, err := os.ReadFile(filepath.Join(accountDir, "token"))
	Expect(err).NotTo(HaveOccurred())
	return writeKubeconfig(dir, controlPlane.URL(), string(token), readCA(controlPlane))
}
