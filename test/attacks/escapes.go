package attacks

import (
	"fmt"
	"slices"
)

// Kinds of VMs, by what their cloud_properties give them.
const (
	Privileged            = "privileged"
	SysAdmin              = "`SYS_ADMIN`"
	SysAdminAndReadSearch = "`SYS_ADMIN`, `DAC_READ_SEARCH`"
	Sandboxed             = "gVisor"
)

// VMKind is a kind of VM.
type VMKind struct {
	Name       string
	Properties map[string]any // cloud_properties
}

// VMKinds are those in which each escape is tried.
func VMKinds() []VMKind {
	security := func(capabilities ...string) map[string]any {
		return map[string]any{"security": map[string]any{"privileged": false, "capabilities": map[string]any{"add": capabilities}}}
	}
	return []VMKind{
		{Privileged, nil},
		{SysAdmin, security("SYS_ADMIN")},
		{SysAdminAndReadSearch, security("SYS_ADMIN", "DAC_READ_SEARCH")},
		{Sandboxed, map[string]any{"runtime_class": "gvisor", "disk_strategy": "recreate", "ephemeral_disk": 512}},
	}
}

// EscapeTarget is what root in a VM goes after: another VM, and its node.
type EscapeTarget struct {
	Address, Node string // of the other VM, and of the node
	Kubelet       int32  // its port there
	Device        string // of the other VM's disk, as "major minor"
	Secret        string // what is on that disk
}

// Escape is a command with which root in a VM tries to reach what is not the VM's. It changes nothing.
type Escape struct {
	Name string
	// SucceedsFrom are the kinds of VMs from which it succeeds.
	SucceedsFrom []string
	// CgroupV1: it succeeds on nodes with cgroup v1 alone.
	CgroupV1 bool
	Why      string
	Command  func(EscapeTarget) string
}

// Succeeds reports whether root in a VM of this kind reaches it, on a node with cgroup v1 or v2.
func (e Escape) Succeeds(kind string, cgroupV1 bool) bool {
	return slices.Contains(e.SucceedsFrom, kind) && (cgroupV1 || !e.CgroupV1)
}

var (
	fromNone       []string
	fromPrivileged = []string{Privileged}
	fromAdmin      = []string{Privileged, SysAdmin, SysAdminAndReadSearch}
	fromAll        = []string{Privileged, SysAdmin, SysAdminAndReadSearch, Sandboxed}
	fixedCommand   = func(command string) func(EscapeTarget) string { return func(EscapeTarget) string { return command } }
)

// rewriteFile writes a file's content back to it.
func rewriteFile(file string) string {
	return fmt.Sprintf(`content=$(<%[1]s) && echo "$content" >%[1]s`, file)
}

// withMount runs the command with what is mounted at /tmp/mounted, and unmounts it.
func withMount(mount, command string) string {
	return "mkdir -p /tmp/mounted; " + mount + " || exit; (" + command + "); status=$?; umount /tmp/mounted; exit $status"
}

// openByHandleScript opens the root of the filesystem that /etc/hosts is on, which is the node's: its inode is the second one of ext4.
const openByHandleScript = `perl -e '
	open(my $at, "<", "/etc/hosts") or die;
	my $handle = pack("LlLL", 8, 1, 2, 0);
	my $folder = syscall(304, fileno($at), $handle, 0200000);
	die "$!" if $folder < 0;
	print readlink("/proc/self/fd/$folder"), "\n", join(" ", map { s,.*/,,r } glob("/proc/self/fd/$folder/*"));
	exit 1 unless -d "/proc/self/fd/$folder/var" || -d "/proc/self/fd/$folder/lib"'`

// loadModuleScript asks the kernel to load what is not a module: it says so only to whoever may load one.
const loadModuleScript = `perl -e 'use Errno; my $x = "x" x 64; syscall(175, $x, 64, "\0"); exit(!($!{ENOEXEC}))'`

// Escapes are what docs/trust.md shows of root in a VM.
func Escapes() []Escape {
	return []Escape{
		{"another VM's disk, by a device node of its own making", fromPrivileged, false, "the device cgroup keeps the others out", func(t EscapeTarget) string {
			return "rm -f /tmp/disk; mknod /tmp/disk b " + t.Device + " && dd if=/tmp/disk bs=1M count=64 2>/dev/null | grep -q -a " + t.Secret
		}},
		{"the node's kernel settings, at /proc/sys", fromPrivileged, false, "it is read-only for the others", fixedCommand(rewriteFile("/proc/sys/kernel/core_pattern"))},
		{"the node's kernel settings, in a /proc that it mounts itself, and so root on the node by `core_pattern`", fromAdmin, false, "what `SYS_ADMIN` alone gives",
			fixedCommand(withMount("mount -t proc proc /tmp/mounted", rewriteFile("/tmp/mounted/sys/kernel/core_pattern")))},
		{"a cgroup hierarchy's `release_agent`, and so root on the node", fromAdmin, true, "what `SYS_ADMIN` alone gives, with cgroup v1",
			fixedCommand(`mkdir -p /tmp/mounted; for each in $(awk 'NR > 1 { print $1 }' /proc/cgroups); do mount -t cgroup -o "$each" cgroup /tmp/mounted 2>/dev/null && break; done
				(` + rewriteFile("/tmp/mounted/release_agent") + `); status=$?; umount /tmp/mounted; exit $status`)},
		{"the node's files, by open_by_handle_at", []string{Privileged, SysAdminAndReadSearch}, false, "`DAC_READ_SEARCH`; Linux 6.12 and newer let `SYS_ADMIN` open directories", fixedCommand(openByHandleScript)},
		{"the node's memory, by /dev/mem", fromNone, false, "Linux' STRICT_DEVMEM, or no such device", fixedCommand("head -c 1 /dev/mem | grep -q .")},
		{"a kernel module", fromPrivileged, false, "`SYS_MODULE`", fixedCommand(loadModuleScript)},
		{"the node's cgroups", fromNone, false, "a view of its own, which root with `SYS_ADMIN` can leave", fixedCommand("ls -d /sys/fs/cgroup/kubepods* /sys/fs/cgroup/*/kubepods*")},
		{"the node's processes", fromNone, false, "PID namespace", fixedCommand("grep -qx kubelet /proc/[0-9]*/comm")},
		{"the node's network", fromNone, false, "network namespace", fixedCommand("ip -o link | grep -q cali")},
		{"other VMs' folders on the node", fromNone, false, "mount namespace", fixedCommand("ls -d /run/bosh-kubernetes-cpi")},
		{"the API of Kubernetes, as somebody", fromNone, false, "no service account's token", fixedCommand("ls /var/run/secrets/kubernetes.io/serviceaccount/token")},
		{"another VM's agent's port", fromAll, false, "asks for credentials; a NetworkPolicy", func(t EscapeTarget) string { return connectCommand(t.Address, 6868) }},
		{"the kubelet's port", fromAll, false, "asks for credentials; a NetworkPolicy", func(t EscapeTarget) string { return connectCommand(t.Node, t.Kubelet) }},
	}
}

func connectCommand(address string, port int32) string {
	return fmt.Sprintf("timeout 5 bash -c '</dev/tcp/%s/%d'", address, port)
}
