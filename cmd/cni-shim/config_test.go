package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/version"

	"bosh-kubernetes-cpi/cmd/cni-shim/install"
	"bosh-kubernetes-cpi/test/harness/canary"
)

// userNetworks are network configurations as the installers of network plugins and users write them.
var userNetworks = map[string]string{
	"flannel": `{"name":"cbr0","cniVersion":"0.3.1","plugins":[{"type":"flannel","delegate":{"hairpinMode":true,"isDefaultGateway":true}},
		{"type":"portmap","capabilities":{"portMappings":true}}]}`,
	"flannel, one plugin": `{"name":"cbr0","cniVersion":"0.3.1","type":"flannel","subnetFile":"/run/flannel/subnet.env","delegate":{"isDefaultGateway":true}}`,
	"calico": `{"name":"k8s-pod-network","cniVersion":"0.3.1","plugins":[{"type":"calico","log_level":"info","datastore_type":"kubernetes",
		"nodename":"node-1","mtu":0,"ipam":{"type":"calico-ipam"},"policy":{"type":"k8s"},"kubernetes":{"kubeconfig":"/etc/cni/net.d/calico-kubeconfig"}},
		{"type":"bandwidth","capabilities":{"bandwidth":true}},{"type":"portmap","snat":true,"capabilities":{"portMappings":true}}]}`,
	"cilium": `{"cniVersion":"0.3.1","name":"cilium","plugins":[{"type":"cilium-cni","enable-debug":false,"log-file":"/var/run/cilium/cilium-cni.log"}]}`,
	"aws-vpc": `{"cniVersion":"0.4.0","name":"aws-cni","disableCheck":true,"plugins":[{"name":"aws-cni","type":"aws-cni","vethPrefix":"eni","mtu":"9001",
		"podSGEnforcingMode":"strict","pluginLogFile":"/var/log/aws-routed-eni/plugin.log","pluginLogLevel":"DEBUG","capabilities":{"io.kubernetes.cri.pod-annotations":true}},
		{"name":"egress-cni","type":"egress-cni","mtu":"9001","enabled":"false","ipam":{"type":"host-local","ranges":[[{"subnet":"169.254.172.0/22"}]]}},
		{"type":"portmap","capabilities":{"portMappings":true},"snat":true}]}`,
	"bridge": `{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"bridge","capabilities":{"ips":true},"mtu":1400,"isGateway":true,"ipMasq":true,
		"ipam":{"type":"host-local","ranges":[[{"subnet":"10.9.9.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]},"dns":{"nameservers":["10.9.9.1"]}}]}`,
	"ptp (kind)": `{"cniVersion":"0.3.1","name":"kindnet","plugins":[{"type":"ptp","ipMasq":false,"mtu":1500,
		"ipam":{"type":"host-local","dataDir":"/run/cni-ipam-state","routes":[{"dst":"0.0.0.0/0"}],"ranges":[[{"subnet":"10.244.0.0/24"}]]}},
		{"type":"portmap","capabilities":{"portMappings":true}}]}`,
	"macvlan": `{"cniVersion":"1.1.0","name":"lan","type":"macvlan","master":"eth0","mode":"bridge","capabilities":{"mac":true},"runtimeConfig":{"mac":"02:00:00:00:00:01"},
		"args":{"cni":{"labels":[{"key":"a","value":"b"}]}},"ipam":{"type":"dhcp"}}`,
	"another meta plugin": `{"cniVersion":"1.0.0","name":"genie","plugins":[{"type":"genie","annotation":"cni","namespaces":["a"],"subnets":["10.0.0.0/8"],
		"delegate":{"type":"bridge"},"kubernetes":{"k8s_api_root":"https://10.0.0.1","kubeconfig":"/k"},"prevResult":{"ips":[]}}]}`,
}

// generatedNetwork returns a network configuration of up to three plugins with keys of the specification, of the shim and of unknown
// plugins, and with values of all JSON types.
func generatedNetwork(random *rand.Rand) string {
	keys := append([]string{
		"mtu", "ipam", "dns", "capabilities", "runtimeConfig", "args", "prevResult", "master", "name", "cniVersion", "config", "shim", "a b",
	}, shimKeys...)
	plugin := func() map[string]any {
		generated := map[string]any{}
		for range random.IntN(8) {
			generated[keys[random.IntN(len(keys))]] = generatedValue(random, keys, 3)
		}
		for key, typed := range map[string]any{ // runtimes reject other types for these keys
			"name": "net", "cniVersion": "1.0.0", "dns": map[string]any{"nameservers": []string{"10.0.0.1"}},
			"capabilities":  map[string]bool{"ips": random.IntN(2) == 0, "mac": random.IntN(2) == 0, "portMappings": true},
			"ipam":          map[string]any{"type": "host-local", "delegate": generatedValue(random, keys, 2)},
			"runtimeConfig": map[string]any{"mac": generatedValue(random, keys, 1)}, "prevResult": map[string]any{"ips": []any{}},
		} {
			if _, ok := generated[key]; ok {
				generated[key] = typed
			}
		}
		generated["type"] = fmt.Sprintf("plugin-%d", random.IntN(3))
		return generated
	}
	versions := []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"}
	network := map[string]any{}
	if random.IntN(2) == 0 {
		network = plugin()
	} else {
		plugins := []any{}
		for range 1 + random.IntN(3) {
			plugins = append(plugins, plugin())
		}
		network["plugins"] = plugins
	}
	network["name"], network["cniVersion"] = "net", versions[random.IntN(len(versions))]
	raw, _ := json.Marshal(network)
	return string(raw)
}

func generatedValue(random *rand.Rand, keys []string, depth int) any {
	switch kind := random.IntN(7); {
	case kind == 0:
		return "text"
	case kind == 1:
		return random.IntN(10000)
	case kind == 2:
		return random.IntN(2) == 0
	case kind == 3 || depth == 0:
		return nil
	case kind == 4:
		return []any{generatedValue(random, keys, depth-1), generatedValue(random, keys, depth-1)}
	}
	generated := map[string]any{}
	for range random.IntN(4) {
		generated[keys[random.IntN(len(keys))]] = generatedValue(random, keys, depth-1)
	}
	return generated
}

// pluginInput is what a runtime sends to one plugin.
type pluginInput struct {
	Command, Type string
	Config        any
}

// recordingExec records the input of each plugin instead of running it. The shim forwards its input to the delegate, as for a Pod of a
// namespace that it does not serve.
type recordingExec struct {
	version.PluginDecoder
	inputs []pluginInput
}

func (*recordingExec) FindInPath(plugin string, _ []string) (string, error) { return plugin, nil }

func (e *recordingExec) ExecPlugin(_ context.Context, kind string, stdin []byte, environ []string) ([]byte, error) {
	if kind == install.PluginType {
		entry, err := (&shim{}).parseEntry(stdin)
		if err != nil {
			return nil, err
		}
		delegated, config, err := delegateConfig(entry)
		if err != nil {
			return nil, err
		}
		kind = delegated
		if stdin, err = json.Marshal(config); err != nil {
			return nil, err
		}
	}
	input := pluginInput{Type: kind}
	for _, command := range []string{"ADD", "CHECK", "DEL"} {
		if slices.Contains(environ, "CNI_COMMAND="+command) {
			input.Command = command
		}
	}
	decoder := json.NewDecoder(bytes.NewReader(stdin))
	decoder.UseNumber()
	if err := decoder.Decode(&input.Config); err != nil {
		return nil, err
	}
	e.inputs = append(e.inputs, input)
	config, _ := input.Config.(map[string]any)
	return json.Marshal(map[string]any{"cniVersion": config["cniVersion"], "ips": []any{}})
}

// pluginInputs returns what a runtime sends to the plugins of the network configuration at path, from ADD to DEL.
func pluginInputs(t *testing.T, path string) []pluginInput {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var network map[string]any
	if err := json.Unmarshal(raw, &network); err != nil {
		t.Fatal(err)
	}
	if network["plugins"] == nil { // runtimes convert a configuration of one plugin to a list
		network = map[string]any{"name": network["name"], "cniVersion": network["cniVersion"], "plugins": []any{network}}
		raw, _ = json.Marshal(network)
	}
	list, err := libcni.NetworkConfFromBytes(raw)
	if err != nil {
		t.Fatal(err)
	}
	recorded := &recordingExec{}
	runtime := libcni.NewCNIConfigWithCacheDir(nil, t.TempDir(), recorded)
	container := &libcni.RuntimeConf{ContainerID: "c", NetNS: "/n", IfName: "eth0", CapabilityArgs: map[string]any{
		"ips": []string{"10.0.0.9"}, "mac": "02:00:00:00:00:02", "portMappings": []any{}, "bandwidth": map[string]any{"ingressRate": 1},
	}}
	if _, err := runtime.AddNetworkList(t.Context(), list, container); err != nil {
		t.Fatal(err)
	}
	if checks, _ := version.GreaterThanOrEqualTo(list.CNIVersion, "0.4.0"); checks && !list.DisableCheck {
		if err := runtime.CheckNetworkList(t.Context(), list, container); err != nil {
			t.Fatal(err)
		}
	}
	if err := runtime.DelNetworkList(t.Context(), list, container); err != nil {
		t.Fatal(err)
	}
	return recorded.inputs
}

// testNode has the directories of a node on which the shim is installed.
type testNode struct{ install.Options }

func newTestNode(t *testing.T) testNode {
	t.Helper()
	dir := t.TempDir()
	node := testNode{install.Options{
		BinaryDir: filepath.Join(dir, "bin"), ConfigDir: filepath.Join(dir, "net.d"), Program: filepath.Join(dir, "program"),
		ServiceAccount: dir, Server: "https://10.0.0.1:6443", Annotation: "ip", Namespaces: []string{"bosh"}, Subnets: []string{"10.0.0.0/8"},
	}}
	for _, created := range []string{node.BinaryDir, node.ConfigDir} {
		if err := os.Mkdir(created, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"program", "token", "ca.crt"} {
		node.write(t, filepath.Join(dir, name), "content")
	}
	return node
}

func (testNode) write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// checkDelegate checks that each plugin of the network gets the same input from a runtime with and without the shim.
func (n testNode) checkDelegate(t *testing.T, network string) {
	t.Helper()
	var parsed map[string]json.RawMessage
	if err := json.Unmarshal([]byte(network), &parsed); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(n.ConfigDir, "10-net.conf")
	if parsed["plugins"] != nil {
		path += "list"
	}
	n.write(t, path, network)
	defer os.Remove(path)
	original := pluginInputs(t, path)
	if _, err := n.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	if installed := pluginInputs(t, filepath.Join(n.ConfigDir, "00-bosh-cni-shim.conflist")); !reflect.DeepEqual(installed, original) {
		t.Fatalf("network %s\nplugins get     %v\nwith the shim   %v", network, original, installed)
	}
}

// TestDelegateConfig checks that the shim changes nothing in the input of its delegate, for the configurations of users.
func TestDelegateConfig(t *testing.T) {
	for name, network := range userNetworks {
		t.Run(name, func(t *testing.T) { newTestNode(t).checkDelegate(t, network) })
	}
}

// TestDelegateConfigGenerated is TestDelegateConfig for 1,000 generated configurations.
func TestDelegateConfigGenerated(t *testing.T) {
	random, node := rand.New(rand.NewPCG(1, 2)), newTestNode(t)
	for range 1000 {
		node.checkDelegate(t, generatedNetwork(random))
	}
}

// TestSecrets breaks configurations of a delegate, and checks that no error shows its values.
func TestSecrets(t *testing.T) {
	document := map[string]any{
		"cniVersion": "1.0.0", "name": "pods", "type": install.PluginType, "kubernetes": map[string]any{"kubeconfig": "/etc/cni/kubeconfig"},
		"delegate": map[string]any{
			"type": "calico", "etcd_key": "canary", "capabilities": map[string]any{"ips": true}, "runtimeConfig": map[string]any{"k": "canary"},
			"args": map[string]any{"cni": map[string]any{"token": "canary"}}, "kubernetes": map[string]any{"k8s_auth_token": "canary"},
		},
	}
	broken := 0
	for _, text := range canary.Documents(document, "type", "name", "cniVersion") {
		var s shim
		entry, err := s.parseEntry([]byte(text))
		if err == nil {
			_, err = parseConfig(entry)
		}
		var found delegate
		if err == nil {
			_, found.config, err = delegateConfig(entry)
		}
		if err == nil {
			_, err = found.withAddresses(nil, []string{"10.0.0.1", "fd00::1"})
		}
		if err != nil {
			broken++
			if canary.IsIn(err.Error()) {
				t.Errorf("%v for %s", err, text)
			}
		}
	}
	if broken < 1000 {
		t.Errorf("invalid test: only %d of the documents are rejected", broken)
	}
}
