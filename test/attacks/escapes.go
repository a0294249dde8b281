package attacks

import (
	"fmt"
	"slices"
)

// Kinds of VMs, by what their cloud_properties give them.
const (
	Privileged = "privileged"
	Reduced    = "`SYS_ADMIN`"
	Reading    = "`SYS_ADMIN`, `DAC_READ_SEARCH`"
	Sandboxed  = "gVisor"
)

// Kind is a kind of VM.
type Kind struct {
	Name       string
	Properties map[string]any // cloud_properties
}

// Kinds are those in which each escape is tried.
func Kinds() []Kind {
	security := func(capabilities ...string) map[string]any {
		return map[string]any{"security": map[string]any{"privileged": false, "capabilities": map[string]any{"add": capabilities}}}
	}
	return []Kind{
		{Privileged, nil},
		{Reduced, security("SYS_ADMIN")},
		{Reading, security("SYS_ADMIN", "DAC_READ_SEARCH")},
		{Sandboxed, map[string]any{"runtime_class": "gvisor", "disk_strategy": "recreate", "ephemeral_disk": 512}},
	}
}

// Prey is what root in a VM goes after: another VM, and its node.
type Prey struct {
	Address, Node string // of the other VM, and of the node
	Kubelet       int32  // its port there
	Device        string // of the other VM's disk, as "major minor"
	Loot          string // what is on that disk
}

// Escape is a command with which root in a VM tries to reach what is not the VM's. It changes nothing.
type Escape struct {
	Name string
	// Reached are the kinds of VMs from which it succeeds.
	Reached []string
	// CgroupV1: it succeeds on nodes with cgroup v1 alone.
	CgroupV1 bool
	Why      string
	Command  func(Prey) string
}

// Succeeds reports whether root in a VM of this kind reaches it, on a node with cgroup v1 or v2.
func (e Escape) Succeeds(kind string, cgroupV1 bool) bool {
	return slices.Contains(e.Reached, kind) && (cgroupV1 || !e.CgroupV1)
}

var (
	fromNone        []string
	fromPrivileged  = []string{Privileged}
	fromAdmin       = []string{Privileged, Reduced, Reading}
	fromAll         = []string{Privileged, Reduced, Reading, Sandboxed}
	withoutAnything = func(command string) func(Prey) string { return func(Prey) string { return command } }
)

// rewrite writes a file's content back to it.
func rewrite(file string) string {
	return fmt.Sprintf(`content=$(<%[1]s) && echo "$content" >%[1]s`, file)
}

// mounted runs the command with what is mounted at /tmp/mounted, and unmounts it.
func mounted(mount, command string) string {
	return "mkdir -p /tmp/mounted; " + mount + " || exit; (" + command + "); status=$?; umount /tmp/mounted; exit $status"
}

// byHandle opens the root of the filesystem that /etc/hosts is on, which is the node's: its inode is the second one of ext4.
const byHandle = `perl -e '
	open(my $at, "<", "/etc/hosts") or die;
	my $handle = pack("LlLL", 8, 1, 2, 0);
	my $folder = syscall(304, fileno($at), $handle, 0200000);
	die "$!" if $folder < 0;
	print readlink("/proc/self/fd/$folder"), "\n", join(" ", map { s,.*/,,r } glob("/proc/self/fd/$folder/*"));
	exit 1 unless -d "/proc/self/fd/$folder/var" || -d "/proc/self/fd/$folder/lib"'`

// anyModule asks the kernel to load what is not a module: it says so only to whoever may load one.
const anyModule = `perl -e 'use Errno; my $x = "x" x 64; syscall(175, $x, 64, "\0"); exit(!($!{ENOEXEC}))'`

// Escapes are what docs/trust.md shows of root in a VM.
func Escapes() []Escape {
	return []Escape{
		{"another VM's disk, by a device node of its own making", fromPrivileged, false, "the device cgroup keeps the others out", func(p Prey) string {
			return "rm -f /tmp/disk; mknod /tmp/disk b " + p.Device + " && dd if=/tmp/disk bs=1M count=64 2>/dev/null | grep -q -a " + p.Loot
		}},
		{"the node's kernel settings, at /proc/sys", fromPrivileged, false, "it is read-only for the others", withoutAnything(rewrite("/proc/sys/kernel/core_pattern"))},
		{"the node's kernel settings, in a /proc that it mounts itself, and so root on the node by `core_pattern`", fromAdmin, false, "what `SYS_ADMIN` alone gives",
			withoutAnything(mounted("mount -t proc proc /tmp/mounted", rewrite("/tmp/mounted/sys/kernel/core_pattern")))},
		{"a cgroup hierarchy's `release_agent`, and so root on the node", fromAdmin, true, "what `SYS_ADMIN` alone gives, with cgroup v1",
			withoutAnything(`mkdir -p /tmp/mounted; for each in $(awk 'NR > 1 { print $1 }' /proc/cgroups); do mount -t cgroup -o "$each" cgroup /tmp/mounted 2>/dev/null && break; done
				(` + rewrite("/tmp/mounted/release_agent") + `); status=$?; umount /tmp/mounted; exit $status`)},
		{"the node's files, by open_by_handle_at", []string{Privileged, Reading}, false, "`DAC_READ_SEARCH`; Linux 6.12 and newer let `SYS_ADMIN` open directories", withoutAnything(byHandle)},
		{"the node's memory, by /dev/mem", fromNone, false, "Linux' STRICT_DEVMEM, or no such device", withoutAnything("head -c 1 /dev/mem | grep -q .")},
		{"a kernel module", fromPrivileged, false, "`SYS_MODULE`", withoutAnything(anyModule)},
		{"the node's cgroups", fromNone, false, "a view of its own, which root with `SYS_ADMIN` can leave", withoutAnything("ls -d /sys/fs/cgroup/kubepods* /sys/fs/cgroup/*/kubepods*")},
		{"the node's processes", fromNone, false, "PID namespace", withoutAnything("grep -qx kubelet /proc/[0-9]*/comm")},
		{"the node's network", fromNone, false, "network namespace", withoutAnything("ip -o link | grep -q cali")},
		{"other VMs' folders on the node", fromNone, false, "mount namespace", withoutAnything("ls -d /run/bosh-kubernetes-cpi")},
		{"the API of Kubernetes, as somebody", fromNone, false, "no service account's token", withoutAnything("ls /var/run/secrets/kubernetes.io/serviceaccount/token")},
		{"another VM's agent's port", fromAll, false, "asks for credentials; a NetworkPolicy", func(p Prey) string { return reach(p.Address, 6868) }},
		{"the kubelet's port", fromAll, false, "asks for credentials; a NetworkPolicy", func(p Prey) string { return reach(p.Node, p.Kubelet) }},
	}
}

func reach(address string, port int32) string {
	return fmt.Sprintf("timeout 5 bash -c '</dev/tcp/%s/%d'", address, port)
}
