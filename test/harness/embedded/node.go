package embedded

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// NodeNames are the names of the nodes that a cluster can have.
var NodeNames = []string{"node-1", "node-2"}

func encodeBase64(raw []byte) string { return base64.StdEncoding.EncodeToString(raw) }

// Node is a kubelet and a containerd in a separate mount namespace. The namespace's root is a shared mount, as on a normal host.
type Node struct {
	Name         string
	Dir          string
	ControlPlane *ControlPlane
	// Port is the kubelet's port; its health port is the next one.
	Port int
	// Address is the node's InternalIP.
	Address string
	// Network is the name of the node's network namespace; empty for the host's.
	Network string
	// CSI is the directory of the CSI driver's volumes, the same for all nodes. If it is empty, the node has no driver.
	CSI string
	// Services means that the node runs kube-proxy, so that its Pods reach the cluster's Services. Only one cluster on a host can have
	// Services, because the name of kube-proxy's netfilter table is fixed.
	Services bool
}

func (n *Node) file(name string) string { return filepath.Join(n.Dir, name) }

// KubeletRoot returns the kubelet's directory, with the volumes of Pods.
func (n *Node) KubeletRoot() string { return n.file("kubelet") }

// volumes returns the directory of the default class's volumes.
func (n *Node) volumes() string { return n.file("volumes") }

func (n *Node) socket() string { return n.file("containerd.sock") }

// namespaces returns the process that keeps the node's mount namespace.
func (n *Node) namespaces() Process {
	args := []string{"unshare", "--mount", "--propagation", "private", "sh", "-c", "mount --make-rshared / && exec sleep infinity"}
	if n.Network != "" {
		args = append([]string{"nsenter", "--net=/run/netns/" + n.Network}, args...)
	}
	return Process{Name: "namespaces", Dir: n.Dir, Args: args}
}

func (n *Node) inNamespaces(name string, args ...string) Process {
	pid := strconv.Itoa(n.namespaces().PID())
	return Process{Name: name, Dir: n.Dir, Args: append([]string{"nsenter", "--mount=/proc/" + pid + "/ns/mnt", "--net=/proc/" + pid + "/ns/net", "--"}, args...)}
}

// Containerd returns the node's container runtime.
func (n *Node) Containerd() Process {
	return n.inNamespaces("containerd", "containerd", "--config", n.file("containerd.toml"), "--log-level", "warn")
}

// Kubelet returns the node's kubelet.
func (n *Node) Kubelet() Process {
	return n.inNamespaces("kubelet", "kubelet", "--config", n.file("kubelet.yaml"),
		"--kubeconfig", n.ControlPlane.Kubeconfig("system:node:"+n.Name), "--hostname-override", n.Name,
		"--node-ip", n.Address, "--root-dir", n.KubeletRoot(), "--cert-dir", n.file("pki"),
		"--node-labels", "topology.kubernetes.io/zone="+n.zone()+",topology.kubernetes.io/region=embedded", "--v=1")
}

func (n *Node) zone() string { return strings.Replace(n.Name, "node-", "zone-", 1) }

// LXCFS returns the node's lxcfs. Its files at LXCFSRoot show the resources of the container that reads them. Start does not start it.
func (n *Node) LXCFS() Process {
	return n.inNamespaces("lxcfs", "embedded-lxcfs", "--foreground", "--enable-loadavg", "--enable-cfs", "--pidfile", n.file("lxcfs.fuse.pid"), n.LXCFSRoot())
}

// LXCFSRoot returns the mount point of LXCFS.
func (n *Node) LXCFSRoot() string { return n.file("lxcfs") }

// Felix returns the node's agent of Calico for network policies. It changes the netfilter rules of the node's network namespace, which
// StopFelix deletes. Start does not start it.
func (n *Node) Felix() Process {
	return n.inNamespaces("felix", "env", "FELIX_DATASTORETYPE=kubernetes", "KUBECONFIG="+n.ControlPlane.Kubeconfig("admin"),
		"FELIX_FELIXHOSTNAME="+n.Name, "FELIX_IPV6SUPPORT=false", "FELIX_DEFAULTENDPOINTTOHOSTACTION=ACCEPT", "FELIX_LOGFILEPATH=none",
		"FELIX_LOGSEVERITYSCREEN=warning", "FELIX_USAGEREPORTINGENABLED=false", "embedded-felix")
}

// StopFelix stops Felix and deletes all netfilter rules of the node, which must have a network namespace of its own.
func (n *Node) StopFelix(ctx context.Context) error {
	if n.Network == "" {
		return errors.New("the node uses the network namespace of the host")
	}
	stopErr := n.Felix().Stop()
	_, err := n.Shell(ctx, `for table in raw mangle nat filter; do for change in --flush --delete-chain; do
		"$(command -v embedded-felix | xargs dirname)/netfilter/iptables-nft" --table $table $change || exit; done; done`)
	return errors.Join(stopErr, err)
}

// KubeProxy returns the node's kube-proxy. It changes the netfilter rules of the node's network namespace; see deleteServiceRules.
func (n *Node) KubeProxy() Process {
	return n.inNamespaces("kube-proxy", "embedded-kube-proxy", "--config", n.file("kube-proxy.yaml"), "--hostname-override", n.Name)
}

// startKubeProxy starts kube-proxy, if the node has Services, and waits for its rules. kube-proxy requires the Node object, which the
// kubelet creates.
func (n *Node) startKubeProxy(ctx context.Context) error {
	if !n.Services {
		return nil
	}
	if err := n.KubeProxy().Start(); err != nil {
		return err
	}
	err := WaitUntil(ctx, 30*time.Second, n.Name+"'s kube-proxy", func(ctx context.Context) (bool, error) {
		_, err := n.nft(ctx, "list", "table", "ip", "kube-proxy")
		return err == nil, err
	})
	if err != nil {
		return fmt.Errorf("%w; last lines of its log:\n%s", err, n.KubeProxy().LastLines())
	}
	return nil
}

// deleteServiceRules deletes the netfilter rules of kube-proxy.
func (n *Node) deleteServiceRules(ctx context.Context) error {
	if program, _ := exec.LookPath("embedded-nft"); program == "" {
		return nil // the node never ran kube-proxy
	}
	tables, err := n.nft(ctx, "list", "tables")
	if err != nil {
		return err
	}
	for _, family := range []string{"ip", "ip6"} {
		if strings.Contains(tables, "table "+family+" kube-proxy") {
			if _, err := n.nft(ctx, "delete", "table", family, "kube-proxy"); err != nil {
				return err
			}
		}
	}
	return nil
}

// nft runs nft in the node's network namespace, even if the node is not running.
func (n *Node) nft(ctx context.Context, args ...string) (string, error) {
	if n.Network == "" {
		return Run(ctx, "embedded-nft", args...)
	}
	return Run(ctx, "nsenter", append([]string{"--net=/run/netns/" + n.Network, "embedded-nft"}, args...)...)
}

// Exec runs a program in the node's namespaces.
func (n *Node) Exec(ctx context.Context, args ...string) (string, error) {
	process := n.inNamespaces("exec", args...)
	return Run(ctx, process.Args[0], process.Args[1:]...)
}

// Shell runs a bash command in the node's namespaces.
func (n *Node) Shell(ctx context.Context, command string) (string, error) {
	out, err := n.Exec(ctx, "bash", "-c", command)
	return strings.TrimSpace(out), err
}

// Ctr runs containerd's ctr for the kubelet's containers and images.
func (n *Node) Ctr(ctx context.Context, args ...string) (string, error) {
	return n.Exec(ctx, append([]string{"ctr", "--address", n.socket(), "--namespace", "k8s.io"}, args...)...)
}

// Start starts the node and waits until it is ready.
func (n *Node) Start(ctx context.Context) error {
	if err := n.configure(); err != nil {
		return err
	}
	if err := n.startNamespaces(ctx); err != nil {
		return err
	}
	if err := n.StartContainerd(ctx); err != nil {
		return err
	}
	if err := n.importImages(ctx); err != nil {
		return err
	}
	if n.CSI != "" {
		if err := n.CSIDriver().Start(); err != nil {
			return err
		}
	}
	if err := n.StartKubelet(ctx); err != nil {
		return err
	}
	return n.startKubeProxy(ctx)
}

// startNamespaces creates the namespaces of the node's processes.
func (n *Node) startNamespaces(ctx context.Context) error {
	if err := n.joinNetwork(ctx); err != nil {
		return err
	}
	if n.Network != "" || n.Services {
		if err := n.bridge().Start(); err != nil {
			return err
		}
	}
	if err := n.namespaces().Start(); err != nil {
		return err
	}
	return WaitUntil(ctx, 5*time.Second, n.Name+"'s mount namespace", func(ctx context.Context) (bool, error) {
		out, err := n.Exec(ctx, "findmnt", "--noheadings", "--output", "PROPAGATION", "/")
		return strings.TrimSpace(out) == "shared", err
	})
}

// StartContainerd starts the runtime and waits until it responds.
func (n *Node) StartContainerd(ctx context.Context) error {
	if err := n.Containerd().Start(); err != nil {
		return err
	}
	err := WaitUntil(ctx, time.Minute, n.Name+"'s containerd", func(ctx context.Context) (bool, error) {
		_, err := n.Ctr(ctx, "version")
		return err == nil, err
	})
	if err != nil {
		return fmt.Errorf("%w; last lines of its log:\n%s", err, n.Containerd().LastLines())
	}
	return nil
}

// StartKubelet starts the kubelet and waits until the node is ready.
func (n *Node) StartKubelet(ctx context.Context) error {
	err := WaitUntil(ctx, 2*time.Minute, n.Name+" to be ready", func(ctx context.Context) (bool, error) {
		if err := n.Kubelet().Start(); err != nil { // again if it exited
			return false, err
		}
		// The node's status may be from a previous kubelet, so the current one must respond, too.
		if _, err := n.ControlPlane.Kubectl(ctx, "get", "--raw", "/api/v1/nodes/"+n.Name+"/proxy/healthz"); err != nil {
			return false, err
		}
		out, err := n.ControlPlane.Kubectl(ctx, "get", "node", n.Name, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		return out == "True", err
	})
	if err != nil {
		return fmt.Errorf("%w; last lines of its kubelet's log:\n%s", err, n.Kubelet().LastLines())
	}
	return nil
}

// RestartKubelet restarts the kubelet, and waits until the node is ready.
func (n *Node) RestartKubelet(ctx context.Context) error {
	if err := n.Kubelet().Stop(); err != nil {
		return err
	}
	return n.StartKubelet(ctx)
}

// Stop kills the node's processes and containers, like a power cut. The mounts in its namespace are lost with it.
func (n *Node) Stop(ctx context.Context) error {
	for _, process := range []Process{n.Kubelet(), n.KubeProxy(), n.Containerd(), n.CSIDriver()} {
		if err := process.Kill(); err != nil {
			return err
		}
	}
	if err := n.killContainers(ctx); err != nil {
		return err
	}
	if err := n.bridge().Kill(); err != nil {
		return err
	}
	return n.namespaces().Kill()
}

// killContainers kills the node's containerd shims and their processes.
func (n *Node) killContainers(ctx context.Context) error {
	return WaitUntil(ctx, 30*time.Second, n.Name+"'s containers to exit", func(context.Context) (bool, error) {
		shims, err := n.shims()
		if err != nil {
			return false, err
		}
		for _, shim := range shims {
			for _, child := range descendants(shim) {
				_ = syscall.Kill(child, syscall.SIGKILL)
			}
			_ = syscall.Kill(shim, syscall.SIGKILL)
		}
		return len(shims) == 0, nil
	})
}

func (n *Node) shims() ([]int, error) {
	return findProcesses(func(command string) bool {
		return strings.Contains(command, "containerd-shim-runc-v2") && strings.Contains(command, n.socket())
	})
}

func findProcesses(matches func(commandLine string) bool) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || startTime(pid) == "" {
			continue
		}
		raw, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if err == nil && matches(strings.ReplaceAll(string(raw), "\x00", " ")) {
			found = append(found, pid)
		}
	}
	return found, nil
}

// descendants returns the process's children and their descendants.
func descendants(pid int) []int {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	var found []int
	for _, task := range tasks {
		raw, err := os.ReadFile(task)
		if err != nil {
			continue
		}
		for field := range strings.FieldsSeq(string(raw)) {
			if child, err := strconv.Atoi(field); err == nil {
				found = append(found, child)
				found = append(found, descendants(child)...)
			}
		}
	}
	return found
}
