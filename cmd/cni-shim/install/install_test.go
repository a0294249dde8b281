package install_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

	"bosh-kubernetes-cpi/cmd/cni-shim/install"
)

func TestInstall(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute)
	RunSpecs(t, "install")
}

const (
	bridgeNetwork = `{"cniVersion":"1.0.0","name":"pods","disableCheck":true,"plugins":[
		{"type":"bridge","capabilities":{"ips":true},"mtu":1400,"ipam":{"type":"host-local","subnet":"10.9.9.0/24"}},
		{"type":"portmap","capabilities":{"portMappings":true}}]}`
	token = "t0ken"
)

// node is the options of the installer, with temporary directories instead of the node's.
type node struct {
	install.Options
}

func newNode(networks map[string]string) node {
	dir := GinkgoT().TempDir()
	n := node{install.Options{
		BinaryDir: filepath.Join(dir, "bin"), ConfigDir: filepath.Join(dir, "net.d"), Program: filepath.Join(dir, "program"),
		ServiceAccount: filepath.Join(dir, "account"), Server: "https://10.0.0.1:6443",
	}}
	for _, path := range []string{n.BinaryDir, n.ConfigDir, n.ServiceAccount} {
		Expect(os.Mkdir(path, 0o755)).To(Succeed())
	}
	n.write(n.Program, "version 1")
	n.write(filepath.Join(n.ServiceAccount, "token"), token+"\n")
	n.write(filepath.Join(n.ServiceAccount, "ca.crt"), "authority")
	for name, content := range networks {
		n.write(filepath.Join(n.ConfigDir, name), content)
	}
	return n
}

func (n node) write(path, content string) {
	Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
}

func (n node) configPath() string     { return filepath.Join(n.ConfigDir, "00-bosh-cni-shim.conflist") }
func (n node) kubeconfigPath() string { return filepath.Join(n.ConfigDir, "bosh-cni-shim.kubeconfig") }
func (n node) binaryPath() string     { return filepath.Join(n.BinaryDir, "bosh-cni-shim") }

func (n node) install() error {
	_, err := n.Install(context.Background())
	return err
}

func (n node) verify() error { return n.Verify(context.Background()) }

func readFile(path string) string {
	GinkgoHelper()
	raw, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	return string(raw)
}

func fileNames(dir string) []string {
	entries, err := os.ReadDir(dir)
	Expect(err).NotTo(HaveOccurred())
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

var _ = Describe("Install", func() {
	It("replaces the first plugin of the first network", func() {
		n := newNode(map[string]string{"10-pods.conflist": bridgeNetwork, "20-other.conflist": "{}", "05-note.txt": "not a network"})
		Expect(n.Install(context.Background())).To(HaveExactElements(n.binaryPath(), n.kubeconfigPath(), n.configPath()))
		Expect(readFile(n.configPath())).To(MatchJSON(`{"cniVersion":"1.0.0","name":"pods","disableCheck":true,"plugins":[
			{"type":"bosh-cni-shim","capabilities":{"ips":true},"kubernetes":{"kubeconfig":"` + n.kubeconfigPath() + `"},
			 "delegate":{"type":"bridge","capabilities":{"ips":true},"mtu":1400,"ipam":{"type":"host-local","subnet":"10.9.9.0/24"}}},
			{"type":"portmap","capabilities":{"portMappings":true}}]}`))
		Expect(readFile(n.binaryPath())).To(Equal("version 1"))
		Expect(readFile(filepath.Join(n.ConfigDir, "10-pods.conflist"))).To(Equal(bridgeNetwork), "the node's own network is unchanged")
		Expect(fileNames(n.ConfigDir)[0]).To(Equal(filepath.Base(n.configPath())), "runtimes use the first one")
		for path, mode := range map[string]os.FileMode{n.binaryPath(): 0o755, n.kubeconfigPath(): 0o600, n.configPath(): 0o644} {
			info, err := os.Stat(path)
			Expect(err).NotTo(HaveOccurred())
			Expect(info.Mode().Perm()).To(Equal(mode), path)
		}
	})

	It("writes a kubeconfig with the service account's token and CA", func() {
		n := newNode(map[string]string{"10-pods.conflist": bridgeNetwork})
		Expect(n.install()).To(Succeed())
		Expect(readFile(n.kubeconfigPath())).To(MatchJSON(`{"apiVersion":"v1","kind":"Config","current-context":"bosh-cni-shim",
			"clusters":[{"name":"bosh-cni-shim","cluster":{"server":"https://10.0.0.1:6443","certificate-authority-data":"YXV0aG9yaXR5"}}],
			"users":[{"name":"bosh-cni-shim","user":{"token":"t0ken"}}],
			"contexts":[{"name":"bosh-cni-shim","context":{"cluster":"bosh-cni-shim","user":"bosh-cni-shim"}}]}`))
	})

	It("writes the options to the configuration", func() {
		n := newNode(map[string]string{"10-pods.conflist": bridgeNetwork})
		n.Annotation, n.Timeout, n.Subnets, n.Namespaces = "example.org/ip", 3*time.Second, []string{"10.9.9.0/24"}, []string{"bosh"}
		Expect(n.install()).To(Succeed())
		var network struct{ Plugins []map[string]any }
		Expect(json.Unmarshal([]byte(readFile(n.configPath())), &network)).To(Succeed())
		Expect(network.Plugins[0]).To(SatisfyAll(
			HaveKeyWithValue("annotation", "example.org/ip"), HaveKeyWithValue("subnets", ConsistOf("10.9.9.0/24")),
			HaveKeyWithValue("namespaces", ConsistOf("bosh")),
			HaveKeyWithValue("kubernetes", HaveKeyWithValue("timeout", "3s"))))
	})

	It("converts the configuration of a single plugin to a list", func() {
		n := newNode(map[string]string{"10-pods.conf": `{"cniVersion":"0.3.1","name":"pods","type":"bridge"}`})
		Expect(n.install()).To(Succeed())
		Expect(readFile(n.configPath())).To(MatchJSON(`{"cniVersion":"0.3.1","name":"pods","plugins":[
			{"type":"bosh-cni-shim","kubernetes":{"kubeconfig":"` + n.kubeconfigPath() + `"},"delegate":{"cniVersion":"0.3.1","name":"pods","type":"bridge"}}]}`))
	})

	It("changes nothing when it is called again", func() {
		n := newNode(map[string]string{"10-pods.conflist": bridgeNetwork})
		Expect(n.verify()).NotTo(Succeed())
		Expect(n.Install(context.Background())).To(HaveLen(3))
		Expect(n.verify()).To(Succeed())
		Expect(n.Install(context.Background())).To(BeEmpty())
	})

	DescribeTable("rejects without changing the node's networks", func(networks map[string]string, message string) {
		n := newNode(networks)
		Expect(n.install()).To(MatchError(ContainSubstring(message)))
		Expect(n.configPath()).NotTo(BeAnExistingFile())
		for name, content := range networks {
			Expect(readFile(filepath.Join(n.ConfigDir, name))).To(Equal(content))
		}
	},
		Entry("no network", map[string]string{}, "install the cluster's network plugin first"),
		Entry("a network configuration that is not JSON", map[string]string{"10-a.conf": "{"}, "is not valid JSON"),
		Entry("a network without name", map[string]string{"10-a.conf": `{"cniVersion":"1.0.0","type":"bridge"}`}, "name is missing"),
		Entry("a network without version", map[string]string{"10-a.conf": `{"name":"a","type":"bridge"}`}, "cniVersion is missing"),
		Entry("a network of an old version", map[string]string{"10-a.conf": `{"cniVersion":"0.3.0","name":"a","type":"bridge"}`}, "0.3.1 or later"),
		Entry("Multus", map[string]string{"10-a.conflist": `{"cniVersion":"1.0.0","name":"a","plugins":[{"type":"multus-shim"}]}`}, "with which the shim does not work"),
		Entry("a network without plugins", map[string]string{"10-a.conflist": `{"cniVersion":"1.0.0","name":"a","plugins":[]}`}, "the first plugin has no type"),
		Entry("a network with the shim", map[string]string{"10-a.conf": `{"cniVersion":"1.0.0","name":"a","type":"bosh-cni-shim"}`}, "already"),
		Entry("a network that sorts first", map[string]string{"00-a.conf": `{"cniVersion":"1.0.0","name":"a","type":"bridge"}`}, "sorts before"),
	)

	DescribeTable("rejects without writing a configuration", func(change func(*node)) {
		n := newNode(map[string]string{"10-pods.conflist": bridgeNetwork})
		change(&n)
		Expect(n.install()).NotTo(Succeed())
		Expect(n.configPath()).NotTo(BeAnExistingFile())
	},
		Entry("a relative directory", func(n *node) { n.BinaryDir = "bin" }),
		Entry("an invalid subnet", func(n *node) { n.Subnets = []string{"10.0.0.0"} }),
		Entry("an invalid namespace", func(n *node) { n.Namespaces = []string{"a/b"} }),
		Entry("a service account without a namespace", func(n *node) { n.TokenFor = "bosh-cni-shim" }),
		Entry("a service account with a path", func(n *node) { n.TokenFor = "a/b/../c" }),
		Entry("no server", func(n *node) { n.Server = "" }),
		Entry("no token", func(n *node) { n.ServiceAccount = "/does/not/exist" }),
	)
})

var _ = Describe("Uninstall", func() {
	It("restores the node, and succeeds if it is called again", func() {
		n := newNode(map[string]string{"10-pods.conflist": bridgeNetwork})
		Expect(n.install()).To(Succeed())
		n.write(filepath.Join(n.ConfigDir, ".bosh-cni-shim-new-123"), "written by a killed installer")
		for range 2 {
			Expect(n.Uninstall()).To(Succeed())
			Expect(fileNames(n.ConfigDir)).To(Equal([]string{"10-pods.conflist"}))
			Expect(fileNames(n.BinaryDir)).To(BeEmpty())
		}
		Expect(readFile(filepath.Join(n.ConfigDir, "10-pods.conflist"))).To(Equal(bridgeNetwork))
	})

	It("does not remove a network configuration of another plugin with the same name", func() {
		n := newNode(map[string]string{"00-bosh-cni-shim.conflist": bridgeNetwork})
		Expect(n.Uninstall()).To(MatchError(ContainSubstring("not the shim's")))
		Expect(readFile(n.configPath())).To(Equal(bridgeNetwork))
	})
})

var _ = Describe("Watch", func() {
	var n node
	var stop func()
	var logs *gbytes.Buffer

	startWatch := func(networks map[string]string) {
		n, logs = newNode(networks), gbytes.NewBuffer()
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() { done <- n.Watch(ctx, 5*time.Millisecond, slog.New(slog.NewTextHandler(logs, nil))) }()
		stop = sync.OnceFunc(func() {
			cancel()
			Eventually(done).Should(Receive(BeNil()))
		})
		DeferCleanup(stop)
	}

	It("waits for the node's first network, logs that once, and keeps the files when it is stopped", func() {
		startWatch(nil)
		Eventually(n.binaryPath).Should(BeAnExistingFile())
		Eventually(logs).Should(gbytes.Say("no network configuration"))
		n.write(filepath.Join(n.ConfigDir, "tmp"), bridgeNetwork)
		Expect(os.Rename(filepath.Join(n.ConfigDir, "tmp"), filepath.Join(n.ConfigDir, "10-pods.conflist"))).To(Succeed())
		Eventually(n.verify).Should(Succeed())
		stop()
		Expect(n.verify()).To(Succeed())
		Expect(strings.Count(string(logs.Contents()), "no network configuration")).To(Equal(1))
		Expect(string(logs.Contents())).NotTo(ContainSubstring(token))
	})

	It("applies a renewed token and a changed network, and restores removed files", func() {
		startWatch(map[string]string{"10-pods.conflist": bridgeNetwork})
		Eventually(n.verify).Should(Succeed())
		n.write(filepath.Join(n.ServiceAccount, "token"), "renewed")
		Eventually(func() string { return readFile(n.kubeconfigPath()) }).Should(ContainSubstring(`"renewed"`))
		n.write(filepath.Join(n.ConfigDir, "10-pods.conflist"), strings.ReplaceAll(bridgeNetwork, "1400", "9000"))
		Eventually(func() string { return readFile(n.configPath()) }).Should(ContainSubstring("9000"))
		Expect(os.Remove(n.configPath())).To(Succeed())
		Expect(os.Remove(n.binaryPath())).To(Succeed())
		Eventually(n.verify).Should(Succeed())
	})

	It("keeps the last valid network while the node's own network is invalid", func() {
		startWatch(map[string]string{"10-pods.conflist": bridgeNetwork})
		Eventually(n.verify).Should(Succeed())
		good := readFile(n.configPath())
		n.write(filepath.Join(n.ConfigDir, "10-pods.conflist"), `{"half":`)
		Eventually(logs).Should(gbytes.Say("is not valid JSON"))
		Expect(readFile(n.configPath())).To(Equal(good))
	})
})

var _ = Describe("A node's runtime", func() {
	It("always finds a complete network and the files that it references, during installs, upgrades and removals", func() {
		n := newNode(map[string]string{"10-pods.conflist": bridgeNetwork})
		Expect(os.WriteFile(filepath.Join(n.BinaryDir, "bridge"), []byte("bridge"), 0o755)).To(Succeed())
		var done atomic.Bool
		type loadCounts struct{ shim, plain int }
		counted := make(chan loadCounts, 1)
		problems := make(chan string, 1)
		go func() {
			defer GinkgoRecover()
			var counts loadCounts
			for !done.Load() {
				kind, problem := n.loadNetwork()
				switch {
				case problem != "":
					problems <- problem
					return
				case kind == "bridge":
					counts.plain++
				default:
					counts.shim++
				}
			}
			counted <- counts
		}()
		for i := range 300 {
			n.write(n.Program, strings.Repeat("version", i%7+1))
			n.write(filepath.Join(n.ServiceAccount, "token"), strings.Repeat("token", i%5+1))
			Expect(n.install()).To(Succeed())
			if i%10 == 9 {
				Expect(n.Uninstall()).To(Succeed())
			}
		}
		done.Store(true)
		var counts loadCounts
		Eventually(counted).Should(Receive(&counts), func() string {
			select {
			case problem := <-problems:
				return problem
			default:
				return "the runtime did not finish"
			}
		})
		Expect(counts.shim).To(BeNumerically(">", 0))
		Expect(counts.plain).To(BeNumerically(">", 0))
	})
})

// loadNetwork loads the first network in lexical order, as a runtime does. It returns the type of the first plugin, or a problem.
func (n node) loadNetwork() (kind, problem string) {
	entries, err := os.ReadDir(n.ConfigDir)
	if err != nil {
		return "", err.Error()
	}
	i := slices.IndexFunc(entries, func(e os.DirEntry) bool { return filepath.Ext(e.Name()) == ".conflist" })
	if i < 0 {
		return "", "no network"
	}
	path := filepath.Join(n.ConfigDir, entries[i].Name())
	previous, err := os.Stat(path)
	if err != nil {
		return n.loadNetwork() // removed after the directory was listed: a runtime lists it again, too
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return n.loadNetwork()
	}
	var network struct{ Plugins []struct{ Type string } }
	if err := json.Unmarshal(raw, &network); err != nil || len(network.Plugins) != 2 {
		return "", "incomplete network: " + string(raw)
	}
	kind = network.Plugins[0].Type
	if kind == "bosh-cni-shim" && !isInstalled(n.binaryPath()) && isUnchanged(path, previous) {
		return "", "the network references a plugin that does not exist"
	}
	return kind, ""
}

func isInstalled(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().Perm() == 0o755 && info.Size() > 0
}

// isUnchanged reports whether the file is still the same as previous.
func isUnchanged(path string, previous os.FileInfo) bool {
	current, err := os.Stat(path)
	return err == nil && os.SameFile(current, previous) && current.ModTime().Equal(previous.ModTime())
}
