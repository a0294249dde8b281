package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// VMNodeName is the name of the VM node; see VMNode.
const VMNodeName = "node-vm"

// VMTaint is the taint of the VM node. Only Pods that tolerate it run there.
const VMTaint = "embedded.test/vm-node"

// VMNode is a node with its own operating system, as in production: Debian with its own kernel and systemd, cgroup v2, and a kubelet
// with its default cgroups. The kernel is User Mode Linux. It does not require hardware virtualization, but is several times slower
// than the host.
type VMNode struct {
	Dir          string
	ControlPlane *ControlPlane
	// Image is the directory with the kernel and the root filesystem, created by scripts/node-image. If it is empty, no VM node is
	// created, and an existing one uses the image that it was created with.
	Image string
	// Address is the node's InternalIP, Port the kubelet's port.
	Address string
	Port    int
}

// vmKubeletRoot is the kubelet's directory on the VM node.
const vmKubeletRoot = "/var/lib/kubelet"

// vmVolumes is the directory of the default StorageClass's volumes on the VM node.
const vmVolumes = "/var/lib/embedded/volumes"

func (n *VMNode) file(name string) string { return filepath.Join(n.Dir, name) }

// asNode returns a Node with the VM node's network settings, for code that both kinds of nodes share.
func (n *VMNode) asNode() *Node {
	return &Node{Name: VMNodeName, Dir: n.Dir, ControlPlane: n.ControlPlane, Port: n.Port, Address: n.Address, Network: n.tapName()}
}

// imageDir returns Image, or the image that the node was created with.
func (n *VMNode) imageDir() string {
	if n.Image != "" {
		return n.Image
	}
	recorded, _ := os.ReadFile(n.file("image"))
	return string(recorded)
}

// tapName returns the name of the network device between the host and the VM node.
func (n *VMNode) tapName() string { return fmt.Sprintf("bosh%d-vm", clusterNumber) }

// HostAddress returns the host's address in the node's network.
func (n *VMNode) HostAddress() string { return n.asNode().HostAddress() }

// Kernel returns the kernel's process. Its log is the console of the VM node.
func (n *VMNode) Kernel() Process {
	root := filepath.Join(n.imageDir(), "uml")
	kernel := []string{
		"/usr/bin/linux.uml", "mem=4G", "root=/dev/ubda", "rw", "ubda=/node/root.img", "ubdb=/node/programs.img", "ubdc=/node/store.img",
		"vec0:transport=tap,ifname=" + n.tapName() + ",depth=64,gro=1", "umid=" + n.tapName(), "uml_dir=/tmp",
		"con=null", "con0=null,fd:1", "quiet", "systemd.show_status=0",
	}
	// The kernel has its own root filesystem, because it may require a newer C library than the host's.
	enter := `cd "$0" && mount --rbind /dev dev && mount --rbind /proc proc && mount -t tmpfs tmpfs tmp && mount --bind "$1" node && shift && exec chroot . "$@"`
	return Process{Name: "kernel", Dir: n.Dir, Env: []string{"TMPDIR=/dev/shm", "HOME=/tmp"},
		Args: append([]string{"unshare", "--mount", "--propagation", "private", "sh", "-c", enter, root, n.Dir}, kernel...)}
}

// bridge returns the process that runs ServeBridge.
func (n *VMNode) bridge() Process {
	return n.asNode().bridge()
}

// ServeBridge makes the host's loopback ports available to the VM node at HostAddress, and maintains routes to its Pods, until the
// context is canceled.
func (n *VMNode) ServeBridge(ctx context.Context, ports ...int) error {
	if err := forwardToLoopback(n.HostAddress(), ports); err != nil {
		return err
	}
	return n.asNode().serveRoutes(ctx)
}

// forwardToLoopback forwards these ports of the address to the same ports of the host's loopback interface.
func forwardToLoopback(address string, ports []int) error {
	for _, port := range ports {
		if err := Forward(net.JoinHostPort(address, strconv.Itoa(port)), fmt.Sprintf("127.0.0.1:%d", port)); err != nil {
			return err
		}
	}
	return nil
}

// Forward forwards connections from one TCP address to another.
func Forward(from, to string) error {
	listener, err := net.Listen("tcp", from)
	if err != nil {
		return err
	}
	go acceptAndForward(listener, to)
	return nil
}

// Start boots the VM node, and waits until it is ready in the cluster.
func (n *VMNode) Start(ctx context.Context) error {
	if err := n.createDisks(ctx); err != nil {
		return err
	}
	if err := n.joinNetwork(ctx); err != nil {
		return err
	}
	if err := n.bridge().Start(); err != nil {
		return err
	}
	if err := n.Kernel().Start(); err != nil {
		return err
	}
	if err := n.WaitReady(ctx); err != nil {
		return err
	}
	return n.startCSI(ctx)
}

// WaitReady waits until the VM node's kubelet responds and the node is ready.
func (n *VMNode) WaitReady(ctx context.Context) error {
	err := WaitUntil(ctx, 15*time.Minute, VMNodeName+" to be ready", func(ctx context.Context) (bool, error) {
		if !n.Kernel().Running() {
			return false, fmt.Errorf("its kernel %w", errExited)
		}
		if _, err := n.ControlPlane.Kubectl(ctx, "get", "--raw", "/api/v1/nodes/"+VMNodeName+"/proxy/healthz"); err != nil {
			return false, err
		}
		out, err := n.ControlPlane.Kubectl(ctx, "get", "node", VMNodeName, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		return out == "True", err
	})
	if err != nil {
		return fmt.Errorf("%w; last lines of its console:\n%s", err, n.Kernel().LastLines())
	}
	return nil
}

func (n *VMNode) joinNetwork(ctx context.Context) error {
	if _, err := os.Stat("/sys/class/net/" + n.tapName()); err == nil {
		return nil
	}
	for _, command := range [][]string{
		{"ip", "tuntap", "add", "dev", n.tapName(), "mode", "tap"},
		{"ip", "address", "add", n.HostAddress() + "/30", "dev", n.tapName()},
		{"ip", "link", "set", n.tapName(), "up"},
		{"sysctl", "-qw", "net.ipv4.conf." + n.tapName() + ".forwarding=1"},
	} {
		if _, err := Run(ctx, command[0], command[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// Stop kills the VM node like a power cut.
func (n *VMNode) Stop(ctx context.Context) error {
	if err := n.csiDriver().stop(); err != nil {
		return err
	}
	// Processes on the VM node are also processes on the host, as children of its kernel.
	for _, process := range descendants(n.Kernel().PID()) {
		_ = syscall.Kill(process, syscall.SIGKILL)
	}
	for _, process := range []Process{n.Kernel(), n.bridge()} {
		if err := process.Kill(); err != nil {
			return err
		}
	}
	_, err := os.Stat("/sys/class/net/" + n.tapName())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	_, err = Run(ctx, "ip", "link", "delete", n.tapName())
	return err
}

// Reboot shuts the VM node down cleanly, boots it, and waits until it is ready.
func (n *VMNode) Reboot(ctx context.Context) error {
	if _, err := n.Shell(ctx, "systemctl poweroff --no-block"); err != nil {
		return err
	}
	err := WaitUntil(ctx, 10*time.Minute, VMNodeName+" to be off", func(context.Context) (bool, error) {
		return !n.Kernel().Running(), nil
	})
	if err != nil {
		return err
	}
	return n.Start(ctx)
}

// RestartKubelet restarts the kubelet, and waits until the node is ready.
func (n *VMNode) RestartKubelet(ctx context.Context) error {
	if _, err := n.Shell(ctx, "systemctl restart kubelet.service"); err != nil {
		return err
	}
	return n.WaitReady(ctx)
}

// KubeletRoot returns the kubelet's directory on the VM node.
func (n *VMNode) KubeletRoot() string { return vmKubeletRoot }

// LoopDevices returns all loop devices of the VM node. Only volumes use loop devices there.
func (n *VMNode) LoopDevices(ctx context.Context) ([]string, error) {
	out, err := n.Shell(ctx, "losetup --list --noheadings --output NAME")
	return strings.Fields(out), err
}

// Shell runs a shell command on the VM node.
func (n *VMNode) Shell(ctx context.Context, command string) (string, error) {
	out, err := Run(ctx, "ssh", append(n.sshArgs("-o", "ConnectTimeout=60"), command)...)
	return strings.TrimSpace(out), err
}

// sshArgs returns the arguments of ssh to connect to the VM node, with additional options.
func (n *VMNode) sshArgs(options ...string) []string {
	return append(append([]string{"-i", n.file("key"), "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
		"-o", "LogLevel=ERROR"}, options...), "root@"+n.Address)
}

// Ctr runs containerd's ctr for the kubelet's containers and images on the VM node.
func (n *VMNode) Ctr(ctx context.Context, args ...string) (string, error) {
	return n.Shell(ctx, "/opt/embedded/bin/ctr --namespace k8s.io "+strings.Join(args, " "))
}
