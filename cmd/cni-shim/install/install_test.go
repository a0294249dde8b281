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
	RunSpecs(t, "install")
}

const (
	bridge = `{"cniVersion":"1.0.0","name":"pods","disableCheck":true,"plugins":[
		{"type":"bridge","capabilities":{"ips":true},"mtu":1400,"ipam":{"type":"host-local","subnet":"10.9.9.0/24"}},
		{"type":"portmap","capabilities":{"portMappings":true}}]}`
	token = "t0ken"
)

// node is a node's folders, and what the installer needs.
type node struct {
	install.Options
}

func newNode(networks map[string]string) node {
	dir := GinkgoT().TempDir()
	n := node{install.Options{
		BinaryDir: filepath.Join(dir, "bin"), ConfigDir: filepath.Join(dir, "net.d"), Program: filepath.Join(dir, "program"),
		ServiceAccount: filepath.Join(dir, "account"), Server: "https://10.0.0.1:6443",
	}}
	for _, each := range []string{n.BinaryDir, n.ConfigDir, n.ServiceAccount} {
		Expect(os.Mkdir(each, 0o755)).To(Succeed())
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

func (n node) config() string     { return filepath.Join(n.ConfigDir, "00-bosh-cni-shim.conflist") }
func (n node) kubeconfig() string { return filepath.Join(n.ConfigDir, "bosh-cni-shim.kubeconfig") }
func (n node) binary() string     { return filepath.Join(n.BinaryDir, "bosh-cni-shim") }

func (n node) install() error {
	_, err := n.Install(context.Background())
	return err
}

func (n node) verify() error { return n.Verify(context.Background()) }

func read(path string) string {
	GinkgoHelper()
	raw, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	return string(raw)
}

func names(dir string) []string {
	entries, err := os.ReadDir(dir)
	Expect(err).NotTo(HaveOccurred())
	var all []string
	for _, entry := range entries {
		all = append(all, entry.Name())
	}
	return all
}

var _ = Describe("Install", func() {
	It("stands in the place of the first plugin of the first network", func() {
		n := newNode(map[string]string{"10-pods.conflist": bridge, "20-other.conflist": "{}", "05-note.txt": "no network"})
		Expect(n.Install(context.Background())).To(HaveExactElements(n.binary(), n.kubeconfig(), n.config()))
		Expect(read(n.config())).To(MatchJSON(`{"cniVersion":"1.0.0","name":"pods","disableCheck":true,"plugins":[
			{"type":"bosh-cni-shim","capabilities":{"ips":true},"kubernetes":{"kubeconfig":"` + n.kubeconfig() + `"},
			 "delegate":{"type":"bridge","capabilities":{"ips":true},"mtu":1400,"ipam":{"type":"host-local","subnet":"10.9.9.0/24"}}},
			{"type":"portmap","capabilities":{"portMappings":true}}]}`))
		Expect(read(n.binary())).To(Equal("version 1"))
		Expect(read(filepath.Join(n.ConfigDir, "10-pods.conflist"))).To(Equal(bridge), "the node's network is not touched")
		Expect(names(n.ConfigDir)[0]).To(Equal(filepath.Base(n.config())), "runtimes use the first")
		for path, mode := range map[string]os.FileMode{n.binary(): 0o755, n.kubeconfig(): 0o600, n.config(): 0o644} {
			info, err := os.Stat(path)
			Expect(err).NotTo(HaveOccurred())
			Expect(info.Mode().Perm()).To(Equal(mode), path)
		}
	})

	It("makes a kubeconfig of the service account's files", func() {
		n := newNode(map[string]string{"10-pods.conflist": bridge})
		Expect(n.install()).To(Succeed())
		Expect(read(n.kubeconfig())).To(MatchJSON(`{"apiVersion":"v1","kind":"Config","current-context":"bosh-cni-shim",
			"clusters":[{"name":"bosh-cni-shim","cluster":{"server":"https://10.0.0.1:6443","certificate-authority-data":"YXV0aG9yaXR5"}}],
			"users":[{"name":"bosh-cni-shim","user":{"token":"t0ken"}}],
			"contexts":[{"name":"bosh-cni-shim","context":{"cluster":"bosh-cni-shim","user":"bosh-cni-shim"}}]}`))
	})

	It("writes the options that are given", func() {
		n := newNode(map[string]string{"10-pods.conflist": bridge})
		n.Annotation, n.Timeout, n.Subnets, n.Namespaces = "example.org/ip", 3*time.Second, []string{"10.9.9.0/24"}, []string{"bosh"}
		Expect(n.install()).To(Succeed())
		var network struct{ Plugins []map[string]any }
		Expect(json.Unmarshal([]byte(read(n.config())), &network)).To(Succeed())
		Expect(network.Plugins[0]).To(SatisfyAll(
			HaveKeyWithValue("annotation", "example.org/ip"), HaveKeyWithValue("subnets", ConsistOf("10.9.9.0/24")),
			HaveKeyWithValue("namespaces", ConsistOf("bosh")),
			HaveKeyWithValue("kubernetes", HaveKeyWithValue("timeout", "3s"))))
	})

	It("makes a list of a single plugin", func() {
		n := newNode(map[string]string{"10-pods.conf": `{"cniVersion":"0.3.1","name":"pods","type":"bridge"}`})
		Expect(n.install()).To(Succeed())
		Expect(read(n.config())).To(MatchJSON(`{"cniVersion":"0.3.1","name":"pods","plugins":[
			{"type":"bosh-cni-shim","kubernetes":{"kubeconfig":"` + n.kubeconfig() + `"},"delegate":{"cniVersion":"0.3.1","name":"pods","type":"bridge"}}]}`))
	})

	It("changes nothing when it is repeated", func() {
		n := newNode(map[string]string{"10-pods.conflist": bridge})
		Expect(n.verify()).NotTo(Succeed())
		Expect(n.Install(context.Background())).To(HaveLen(3))
		Expect(n.verify()).To(Succeed())
		Expect(n.Install(context.Background())).To(BeEmpty())
	})

	DescribeTable("refuses, and leaves the node's networks as they are", func(networks map[string]string, says string) {
		n := newNode(networks)
		Expect(n.install()).To(MatchError(ContainSubstring(says)))
		Expect(n.config()).NotTo(BeAnExistingFile())
		for name, content := range networks {
			Expect(read(filepath.Join(n.ConfigDir, name))).To(Equal(content))
		}
	},
		Entry("no network", map[string]string{}, "install the cluster's network plugin first"),
		Entry("a network that is not JSON", map[string]string{"10-a.conf": "{"}, "not JSON"),
		Entry("a network without name", map[string]string{"10-a.conf": `{"cniVersion":"1.0.0","type":"bridge"}`}, "no name"),
		Entry("a network without version", map[string]string{"10-a.conf": `{"name":"a","type":"bridge"}`}, "no cniVersion"),
		Entry("a network of an old version", map[string]string{"10-a.conf": `{"cniVersion":"0.3.0","name":"a","type":"bridge"}`}, "0.3.1 or later"),
		Entry("a network without plugins", map[string]string{"10-a.conflist": `{"cniVersion":"1.0.0","name":"a","plugins":[]}`}, "no plugin"),
		Entry("a network with the shim", map[string]string{"10-a.conf": `{"cniVersion":"1.0.0","name":"a","type":"bosh-cni-shim"}`}, "already"),
		Entry("a network that would come first", map[string]string{"00-a.conf": `{"cniVersion":"1.0.0","name":"a","type":"bridge"}`}, "sorts before"),
	)

	DescribeTable("refuses wrong options before it changes anything", func(change func(*node)) {
		n := newNode(map[string]string{"10-pods.conflist": bridge})
		change(&n)
		Expect(n.install()).NotTo(Succeed())
		Expect(n.config()).NotTo(BeAnExistingFile())
	},
		Entry("a relative folder", func(n *node) { n.BinaryDir = "bin" }),
		Entry("a subnet that is none", func(n *node) { n.Subnets = []string{"10.0.0.0"} }),
		Entry("a namespace that is none", func(n *node) { n.Namespaces = []string{"a/b"} }),
		Entry("an account without a namespace", func(n *node) { n.TokenFor = "bosh-cni-shim" }),
		Entry("an account with more of a path", func(n *node) { n.TokenFor = "a/b/../c" }),
		Entry("no server", func(n *node) { n.Server = "" }),
		Entry("no token", func(n *node) { n.ServiceAccount = "/does/not/exist" }),
	)
})

var _ = Describe("Uninstall", func() {
	It("leaves the node as it was, and may be repeated", func() {
		n := newNode(map[string]string{"10-pods.conflist": bridge})
		Expect(n.install()).To(Succeed())
		n.write(filepath.Join(n.ConfigDir, ".bosh-cni-shim-new-123"), "left by a killed installer")
		for range 2 {
			Expect(n.Uninstall()).To(Succeed())
			Expect(names(n.ConfigDir)).To(Equal([]string{"10-pods.conflist"}))
			Expect(names(n.BinaryDir)).To(BeEmpty())
		}
		Expect(read(filepath.Join(n.ConfigDir, "10-pods.conflist"))).To(Equal(bridge))
	})

	It("leaves a network alone that only has the shim's name", func() {
		n := newNode(map[string]string{"00-bosh-cni-shim.conflist": bridge})
		Expect(n.Uninstall()).To(MatchError(ContainSubstring("not the shim's")))
		Expect(read(n.config())).To(Equal(bridge))
	})
})

var _ = Describe("Watch", func() {
	var n node
	var stop func()
	var logged *gbytes.Buffer

	start := func(networks map[string]string) {
		n, logged = newNode(networks), gbytes.NewBuffer()
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() { done <- n.Watch(ctx, 5*time.Millisecond, slog.New(slog.NewTextHandler(logged, nil))) }()
		stop = sync.OnceFunc(func() {
			cancel()
			Eventually(done).Should(Receive(BeNil()))
		})
		DeferCleanup(stop)
	}

	It("waits for the node's first network, says so once, and leaves everything in place at its end", func() {
		start(nil)
		Eventually(n.binary).Should(BeAnExistingFile())
		Eventually(logged).Should(gbytes.Say("no network configuration"))
		n.write(filepath.Join(n.ConfigDir, "tmp"), bridge)
		Expect(os.Rename(filepath.Join(n.ConfigDir, "tmp"), filepath.Join(n.ConfigDir, "10-pods.conflist"))).To(Succeed())
		Eventually(n.verify).Should(Succeed())
		stop()
		Expect(n.verify()).To(Succeed())
		Expect(strings.Count(string(logged.Contents()), "no network configuration")).To(Equal(1))
		Expect(string(logged.Contents())).NotTo(ContainSubstring(token))
	})

	It("follows a renewed token, a changed network, and repairs what was removed", func() {
		start(map[string]string{"10-pods.conflist": bridge})
		Eventually(n.verify).Should(Succeed())
		n.write(filepath.Join(n.ServiceAccount, "token"), "renewed")
		Eventually(func() string { return read(n.kubeconfig()) }).Should(ContainSubstring(`"renewed"`))
		n.write(filepath.Join(n.ConfigDir, "10-pods.conflist"), strings.ReplaceAll(bridge, "1400", "9000"))
		Eventually(func() string { return read(n.config()) }).Should(ContainSubstring("9000"))
		Expect(os.Remove(n.config())).To(Succeed())
		Expect(os.Remove(n.binary())).To(Succeed())
		Eventually(n.verify).Should(Succeed())
	})

	It("keeps the last good network while the node's own cannot be read", func() {
		start(map[string]string{"10-pods.conflist": bridge})
		Eventually(n.verify).Should(Succeed())
		good := read(n.config())
		n.write(filepath.Join(n.ConfigDir, "10-pods.conflist"), `{"half":`)
		Eventually(logged).Should(gbytes.Say("not JSON"))
		Expect(read(n.config())).To(Equal(good))
	})
})

var _ = Describe("A node's runtime", func() {
	It("finds a whole network, and every file that it names, at each moment of installs, upgrades and removals", func() {
		n := newNode(map[string]string{"10-pods.conflist": bridge})
		Expect(os.WriteFile(filepath.Join(n.BinaryDir, "bridge"), []byte("bridge"), 0o755)).To(Succeed())
		var over atomic.Bool
		type seen struct{ shim, plain int }
		found := make(chan seen, 1)
		problems := make(chan string, 1)
		go func() {
			defer GinkgoRecover()
			var s seen
			for !over.Load() {
				kind, problem := n.load()
				switch {
				case problem != "":
					problems <- problem
					return
				case kind == "bridge":
					s.plain++
				default:
					s.shim++
				}
			}
			found <- s
		}()
		for i := range 300 {
			n.write(n.Program, strings.Repeat("version", i%7+1))
			n.write(filepath.Join(n.ServiceAccount, "token"), strings.Repeat("token", i%5+1))
			Expect(n.install()).To(Succeed())
			if i%10 == 9 {
				Expect(n.Uninstall()).To(Succeed())
			}
		}
		over.Store(true)
		var s seen
		Eventually(found).Should(Receive(&s), func() string {
			select {
			case problem := <-problems:
				return problem
			default:
				return "the runtime did not end"
			}
		})
		Expect(s.shim).To(BeNumerically(">", 0))
		Expect(s.plain).To(BeNumerically(">", 0))
	})
})

// load does what a runtime does with the folder of networks: the first in lexical order, whole. It
// returns the first plugin's type, and what is wrong.
func (n node) load() (kind, problem string) {
	entries, err := os.ReadDir(n.ConfigDir)
	if err != nil {
		return "", err.Error()
	}
	i := slices.IndexFunc(entries, func(e os.DirEntry) bool { return filepath.Ext(e.Name()) == ".conflist" })
	if i < 0 {
		return "", "there is no network"
	}
	path := filepath.Join(n.ConfigDir, entries[i].Name())
	before, err := os.Stat(path)
	if err != nil {
		return n.load() // removed since the folder was read: a runtime reads it again
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return n.load()
	}
	var network struct{ Plugins []struct{ Type string } }
	if err := json.Unmarshal(raw, &network); err != nil || len(network.Plugins) != 2 {
		return "", "a network is not whole: " + string(raw)
	}
	kind = network.Plugins[0].Type
	if kind == "bosh-cni-shim" && !whole(n.binary()) && stillThere(path, before) {
		return "", "the network names a plugin that is not there"
	}
	return kind, ""
}

func whole(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().Perm() == 0o755 && info.Size() > 0
}

// stillThere reports whether the file is the one that it was, and so was there all the time between.
func stillThere(path string, before os.FileInfo) bool {
	now, err := os.Stat(path)
	return err == nil && os.SameFile(now, before) && now.ModTime().Equal(before.ModTime())
}
