//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/containernetworking/cni/libcni"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"

	"bosh-kubernetes-cpi/test/harness/embedded"
)

// Runs the shim in front of real plugins, in network namespaces of the host, with a real API server and without a cluster.
var _ = Describe("The CNI shim", Label("networks"), Ordered, func() {
	var shim shimFixture

	BeforeAll(func(ctx SpecContext) {
		shim = newShimFixture(ctx)
	}, NodeTimeout(3*time.Minute))

	hostLocal := func(ranges ...string) map[string]any {
		var sets []any
		for _, subnet := range ranges {
			sets = append(sets, []any{map[string]any{"subnet": subnet}})
		}
		return shim.bridgeConfig(map[string]any{"type": "host-local", "ranges": sets, "dataDir": filepath.Join(shim.dir, "host-local")})
	}

	It("assigns the requested address to only one Pod, verifies it with CHECK, and releases it with DEL", func(ctx SpecContext) {
		network := shim.networkConfig("1.1.0", hostLocal("198.18.10.0/24"))
		first, second := shim.createPod(ctx, "first", "198.18.10.77"), shim.createPod(ctx, "second", "198.18.10.77")

		added := shim.mustRun(first, "ADD", network)
		Expect(added).To(ContainSubstring("198.18.10.77/24"))
		Expect(first.addresses(ctx)).To(ContainElement("198.18.10.77/24"))
		network["prevResult"] = json.RawMessage(added)
		shim.mustRun(first, "CHECK", network)
		_, err := first.ip(ctx, "address", "del", "198.18.10.77/24", "dev", "eth0")
		Expect(err).NotTo(HaveOccurred())
		Expect(shim.run(first, "CHECK", network)).Error().To(HaveOccurred(), "the shim returns the result of the delegate's CHECK")

		delete(network, "prevResult")
		Expect(shim.run(second, "ADD", network)).Error().To(MatchError(ContainSubstring("198.18.10.77")), "the address is in use")
		shim.mustRun(second, "DEL", network) // as runtimes do after a failure

		network["prevResult"] = json.RawMessage(added)
		shim.mustRun(first, "DEL", network)
		shim.mustRun(first, "DEL", network) // runtimes may retry DEL
		Expect(first.addresses(ctx)).NotTo(ContainElement("198.18.10.77/24"))
		delete(network, "prevResult")
		shim.mustRun(second, "ADD", network)
		Expect(second.addresses(ctx)).To(ContainElement("198.18.10.77/24"))
		shim.mustRun(second, "DEL", network)
	})

	It("connects two Pods at their requested addresses, next to a Pod without a request", func(ctx SpecContext) {
		network := shim.networkConfig("1.0.0", hostLocal("198.18.11.0/24"))
		first, second, withoutRequest := shim.createPod(ctx, "first", "198.18.11.51"), shim.createPod(ctx, "second", "198.18.11.52"), shim.createPod(ctx, "other", "")
		for _, pod := range []shimPod{first, second, withoutRequest} {
			shim.mustRun(pod, "ADD", network)
			DeferCleanup(func() { shim.mustRun(pod, "DEL", network) })
		}
		Expect(first.waitForNeighbor(ctx, "198.18.11.52")).To(Succeed())
		Expect(second.waitForNeighbor(ctx, "198.18.11.51")).To(Succeed())
		Expect(withoutRequest.addresses(ctx)).To(ContainElement(HavePrefix("198.18.11.")))
	})

	DescribeTable("assigns addresses of both families", func(ctx SpecContext, version string, extraConfig map[string]any) {
		delegate := hostLocal("198.18.12.0/24", "fd00:12::/64")
		maps.Copy(delegate, extraConfig)
		network := shim.networkConfig(version, delegate)
		pod := shim.createPod(ctx, "dual", "198.18.12.77,fd00:12::77")
		shim.mustRun(pod, "ADD", network)
		Expect(pod.addresses(ctx)).To(ContainElements("198.18.12.77/24", "fd00:12::77/64"))
		shim.mustRun(pod, "DEL", network)
	},
		Entry("through args.cni.ips", "0.3.1", nil),
		Entry("through the capability ips", "1.0.0", map[string]any{"capabilities": map[string]any{"ips": true}}),
	)

	DescribeTable("passes the prefix length that the static plugin requires", func(ctx SpecContext, version, requested string, addresses ...string) {
		network := shim.networkConfig(version, shim.bridgeConfig(map[string]any{"type": "static"}))
		network["subnets"] = []string{"198.18.13.0/24", "fd00:13::/64"}
		pod := shim.createPod(ctx, "static", requested)
		shim.mustRun(pod, "ADD", network)
		Expect(pod.addresses(ctx)).To(ContainElements(addresses))
		shim.mustRun(pod, "DEL", network)
	},
		Entry("one family", "0.4.0", "198.18.13.77", "198.18.13.77/24"),
		Entry("both families", "1.1.0", "198.18.13.77,fd00:13::77", "198.18.13.77/24", "fd00:13::77/64"),
	)

	It("assigns the address through flannel's delegate in a chain, which keeps the keys of flannel, and passes the result to the next plugin", func(ctx SpecContext) {
		Expect(os.WriteFile(filepath.Join(shim.dir, "flannel"), []byte(flannel), 0o700)).To(Succeed()) //nolint:gosec // a program
		first := shim.networkConfig("", map[string]any{"type": "flannel", "delegate": map[string]any{"hairpinMode": true, "bridge": shimBridge}})
		delete(first, "cniVersion")
		delete(first, "name")
		chain, err := json.Marshal(map[string]any{"cniVersion": "0.3.1", "name": "cbr0", "plugins": []any{first,
			map[string]any{"type": "portmap", "capabilities": map[string]bool{"portMappings": true}}}})
		Expect(err).NotTo(HaveOccurred())
		network, err := libcni.NetworkConfFromBytes(chain)
		Expect(err).NotTo(HaveOccurred())
		runtime := libcni.NewCNIConfigWithCacheDir(filepath.SplitList(shim.path), filepath.Join(shim.dir, "cache"), nil)
		pod := shim.createPod(ctx, "flannel", "198.18.17.77")
		sandbox := &libcni.RuntimeConf{ContainerID: pod.name, NetNS: "/run/netns/" + pod.name, IfName: "eth0",
			Args: [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "default"}, {"K8S_POD_NAME", pod.name}}}
		result, err := runtime.AddNetworkList(ctx, network, sandbox)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) error { return runtime.DelNetworkList(ctx, network, sandbox) })
		Expect(json.Marshal(result)).To(ContainSubstring("198.18.17.77/24"))
		Expect(pod.addresses(ctx)).To(ContainElement("198.18.17.77/24"))
		Expect(embedded.Run(ctx, "bash", "-c", "cat /sys/class/net/"+shimBridge+"/brif/*/hairpin_mode")).To(ContainSubstring("1"), "hairpinMode in delegate")
	})

	It("fails and cleans up if the delegate ignores the requested address", func(ctx SpecContext) {
		// Without an IPAM plugin, bridge ignores requested addresses.
		network := shim.networkConfig("1.0.0", shim.bridgeConfig(map[string]any{}))
		pod := shim.createPod(ctx, "ignored", "198.18.14.77")
		Expect(shim.run(pod, "ADD", network)).Error().To(MatchError(SatisfyAll(
			ContainSubstring(`"code":101`), ContainSubstring("198.18.14.77"), ContainSubstring("assigned none"))))
		Expect(pod.ip(ctx, "link", "show", "eth0")).Error().To(HaveOccurred(), "the delegate's DEL removed the interface")
	})

	It("passes GC and STATUS to the delegate", func(ctx SpecContext) {
		network := shim.networkConfig("1.1.0", hostLocal("198.18.15.0/24"))
		pod := shim.createPod(ctx, "kept", "198.18.15.77")
		shim.mustRun(pod, "STATUS", network)
		shim.mustRun(pod, "ADD", network)
		network["cni.dev/valid-attachments"] = []any{map[string]any{"containerID": pod.name, "ifname": "eth0"}}
		shim.mustRun(pod, "GC", network)
		Expect(pod.addresses(ctx)).To(ContainElement("198.18.15.77/24"), "GC keeps valid attachments")
		delete(network, "cni.dev/valid-attachments")
		shim.mustRun(pod, "DEL", network)

		broken := shim.networkConfig("1.1.0", shim.bridgeConfig(map[string]any{"type": "no-such-manager"}))
		Expect(shim.run(pod, "STATUS", broken)).Error().To(HaveOccurred())
	})

	It("runs DEL while the API server is down, and ADD once it is up again", func(ctx SpecContext) {
		network := shim.networkConfig("1.0.0", hostLocal("198.18.16.0/24"))
		pod := shim.createPod(ctx, "down", "198.18.16.77")
		shim.mustRun(pod, "ADD", network)
		Expect(shim.plane.Process("kube-apiserver").Stop()).To(Succeed())
		shim.mustRun(pod, "DEL", network)
		Expect(shim.run(pod, "ADD", network)).Error().To(MatchError(ContainSubstring(`"code":11`)))
		shim.mustRun(pod, "DEL", network)
		Expect(shim.plane.Start(ctx)).To(Succeed())
		shim.mustRun(pod, "ADD", network)
		Expect(pod.addresses(ctx)).To(ContainElement("198.18.16.77/24"))
		shim.mustRun(pod, "DEL", network)
	}, SpecTimeout(2*time.Minute))
})

// flannel stands in for the plugin of flannel: it adds the node's subnet to "delegate", and runs the plugin bridge with it.
const flannel = `#!/bin/bash
config=$(jq --compact-output --arg data "${0%/*}/host-local" '.delegate + {name, cniVersion, type: "bridge",
  ipam: {type: "host-local", dataDir: $data, ranges: [[{subnet: "198.18.17.0/24"}]]}} + if .runtimeConfig then {runtimeConfig} else {} end')
PATH=$CNI_PATH:$PATH exec bridge <<<"$config"`

// shimFixture provides the shim, the standard plugins and an API server.
type shimFixture struct {
	dir, path string
	plane     *embedded.ControlPlane
}

// shimBridge is the bridge in the host's network namespace that connects the namespaces of the tests.
const shimBridge = "boshshimtest"

// shimNode is the node of the Pods, on which no kubelet runs.
const shimNode = "nowhere"

func newShimFixture(ctx context.Context) shimFixture {
	f := shimFixture{dir: GinkgoT().TempDir()}
	program, err := gexec.BuildWithEnvironment("bosh-kubernetes-cpi/cmd/cni-shim", []string{"CGO_ENABLED=0"})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(gexec.CleanupBuildArtifacts)
	Expect(os.Symlink(program, filepath.Join(f.dir, "bosh-cni-shim"))).To(Succeed())
	hostLocal, err := exec.LookPath("host-local")
	Expect(err).NotTo(HaveOccurred(), "$PATH must include the directory that scripts/build-tools --path cni-plugins prints")
	f.path = f.dir + ":" + filepath.Dir(hostLocal)
	f.plane, err = embedded.NewTestControlPlane(filepath.Join(f.dir, "control-plane"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return f.plane.Stop() })
	Expect(f.plane.Start(ctx)).To(Succeed())
	Expect(f.plane.Apply(ctx, `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default","namespace":"default"}}`)).To(Succeed())
	// Kubernetes deletes Pods on a node that does not exist, after 40 seconds.
	Expect(f.plane.Apply(ctx, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"`+shimNode+`"}}`)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		_, _ = embedded.Run(ctx, "ip", "link", "delete", shimBridge) // not found if no test ran ADD
	})
	return f
}

// bridgeConfig returns the configuration of the delegate. The bridge has no address, so that the host's network is unchanged.
func (f shimFixture) bridgeConfig(ipam map[string]any) map[string]any {
	return map[string]any{"type": "bridge", "bridge": shimBridge, "ipam": ipam}
}

func (f shimFixture) networkConfig(version string, delegate map[string]any) map[string]any {
	return map[string]any{
		"cniVersion": version, "name": "shim-test", "type": "bosh-cni-shim", "delegate": delegate,
		"kubernetes": map[string]any{"kubeconfig": f.plane.Kubeconfig("cni"), "timeout": "5s"},
	}
}

// shimPod is a Pod in the API, with a network namespace instead of a sandbox.
type shimPod struct{ name string }

func (f shimFixture) createPod(ctx context.Context, name, addresses string) shimPod {
	pod := shimPod{fmt.Sprintf("bosh-shim-%s-%d", name, time.Now().UnixNano())}
	annotations := map[string]string{}
	if addresses != "" {
		annotations["bosh.cloudfoundry.org/ip-address"] = addresses
	}
	raw, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": pod.name, "namespace": "default", "annotations": annotations},
		"spec": map[string]any{"nodeName": shimNode, "containers": []any{map[string]any{"name": "c", "image": "none"}}},
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(f.plane.Apply(ctx, string(raw))).To(Succeed())
	Expect(embedded.Run(ctx, "ip", "netns", "add", pod.name)).Error().NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) {
		Expect(embedded.Run(ctx, "ip", "netns", "delete", pod.name)).Error().NotTo(HaveOccurred())
	})
	return pod
}

func (p shimPod) ip(ctx context.Context, args ...string) (string, error) {
	return embedded.Run(ctx, "ip", append([]string{"-netns", p.name}, args...)...)
}

// addresses returns the addresses of the Pod's interfaces with their prefix lengths.
func (p shimPod) addresses(ctx context.Context) []string {
	GinkgoHelper()
	raw, err := p.ip(ctx, "-json", "address", "show")
	Expect(err).NotTo(HaveOccurred())
	var links []struct {
		Addresses []struct {
			Local  string `json:"local"`
			Prefix int    `json:"prefixlen"`
		} `json:"addr_info"`
	}
	Expect(json.Unmarshal([]byte(raw), &links)).To(Succeed())
	var addresses []string
	for _, link := range links {
		for _, address := range link.Addresses {
			addresses = append(addresses, fmt.Sprintf("%s/%d", address.Local, address.Prefix))
		}
	}
	return addresses
}

// waitForNeighbor waits until the kernel of the Pod at the address responds on the link.
func (p shimPod) waitForNeighbor(ctx context.Context, address string) error {
	return embedded.WaitUntil(ctx, 20*time.Second, address+" to be a neighbor", func(ctx context.Context) (bool, error) {
		// A packet to any port of the address makes the kernel look for the neighbor.
		_, _ = embedded.RunInput(ctx, "x", "ip", "netns", "exec", p.name, "bash", "-c", "cat >/dev/udp/"+address+"/9")
		neighbors, err := p.ip(ctx, "neigh", "show", address)
		return strings.Contains(neighbors, "lladdr"), err
	})
}

// run runs the shim like a container runtime and returns its stdout. On failure, the error contains the stdout.
func (f shimFixture) run(pod shimPod, command string, network map[string]any) (string, error) {
	stdin, err := json.Marshal(network)
	Expect(err).NotTo(HaveOccurred())
	shim := exec.Command(filepath.Join(f.dir, "bosh-cni-shim"))
	shim.Env = []string{
		"PATH=" + os.Getenv("PATH"), "CNI_COMMAND=" + command, "CNI_CONTAINERID=" + pod.name, "CNI_NETNS=/run/netns/" + pod.name,
		"CNI_IFNAME=eth0", "CNI_PATH=" + f.path, "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + pod.name,
	}
	shim.Stdin = bytes.NewReader(stdin)
	var stdout bytes.Buffer
	shim.Stdout, shim.Stderr = &stdout, GinkgoWriter
	if err := shim.Run(); err != nil {
		return "", fmt.Errorf("%s of %s: %w: %s", command, pod.name, err, stdout.String())
	}
	return stdout.String(), nil
}

func (f shimFixture) mustRun(pod shimPod, command string, network map[string]any) string {
	GinkgoHelper()
	result, err := f.run(pod, command, network)
	Expect(err).NotTo(HaveOccurred())
	return result
}
