package attacks

import (
	"fmt"
	"slices"
)

// Kinds of VMs, by the privileges in their cloud_properties.
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

// VMKinds returns the kinds of VMs in which the tests try each escape.
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

// EscapeTarget describes the VM and the node that an escape tries to reach.
type EscapeTarget struct {
	Address     string // address of the other VM
	Node        string // address of the node
	KubeletPort int32  // the kubelet's port
	Device      string // device number of the other VM's disk, "major minor"
	DiskContent string // content of that disk
}

// Escape is a command, run as root in a VM, that tries to reach something outside of the VM. It changes nothing.
type Escape struct {
	Name string
	// SucceedsFrom are the kinds of VMs in which the command succeeds.
	SucceedsFrom []string
	// CgroupV1Only lists the kinds in SucceedsFrom in which the command succeeds only on nodes with cgroup v1.
	CgroupV1Only []string
	// Reason explains why the command succeeds or fails.
	Reason  string
	Command func(EscapeTarget) string
}

// Succeeds reports whether the escape succeeds in a VM of this kind, on a node with cgroup v1 or v2.
func (e Escape) Succeeds(kind string, cgroupV1 bool) bool {
	return slices.Contains(e.SucceedsFrom, kind) && (cgroupV1 || !slices.Contains(e.CgroupV1Only, kind))
}

var (
	fromNone       []string
	fromPrivileged = []string{Privileged}
	fromAdmin      = []string{Privileged, SysAdmin, SysAdminAndReadSearch}
	fromAll        = []string{Privileged, SysAdmin, SysAdminAndReadSearch, Sandboxed}
	fixedCommand   = func(command string) func(EscapeTarget) string { return func(EscapeTarget) string { return command } }
)

// rewriteFile returns a command that writes a file's content back to the file.
func rewriteFile(file string) string {
	return fmt.Sprintf(`content=$(<%[1]s) && echo "$content" >%[1]s`, file)
}

// withMount returns a command that runs mount and command, and then unmounts /tmp/mounted.
func withMount(mount, command string) string {
	return "mkdir -p /tmp/mounted; " + mount + " || exit; (" + command + "); status=$?; umount /tmp/mounted; exit $status"
}

// openByHandleScript opens the root directory of the node's filesystem that contains a file of the kubelet or the VM's ephemeral disk.
// On ext4 it is inode 2, on XFS usually one of the others.
const openByHandleScript = `perl -e '
	for my $file ("/dev/termination-log", "/etc/hosts", "/var/vcap/data") {
		open(my $at, "<", $file) or next;
		for my $inode (2, 64, 96, 128) {
			my $handle = pack("LlLL", 8, 1, $inode, 0);
			my $dir = syscall(304, fileno($at), $handle, 0200000);
			exit 0 if $dir >= 0 && grep { -d "/proc/self/fd/$dir/$_" } "var", "lib";
		}
	}
	exit 1'`

// loadModuleScript asks the kernel to load data that is not a module. The kernel returns ENOEXEC only to a process that may load modules.
// A kernel without modules rejects all processes: then the command checks the capability SYS_MODULE.
var loadModuleScript = `if [[ -e /proc/modules ]]; then
	perl -e 'use Errno; my ($module, $arguments) = ("x" x 64, "\0"); syscall(175, $module, 64, $arguments); exit(!$!{ENOEXEC})'
else
	` + checkCapability(16) + `
fi`

// openMemoryScript opens the device of the node's memory. A kernel that was built without this device returns ENXIO to a process that
// may use it. So does the kernel of a sandbox, which also lacks the class of this device.
var openMemoryScript = `rm -f /tmp/memory; mknod /tmp/memory c 1 1 &&
	perl -e 'use Errno; exit 0 if open(my $memory, "<", "/tmp/memory"); exit(!$!{ENXIO})' && [[ -d /sys/class/mem ]] && ` + checkCapability(17)

// checkCapability returns a command that succeeds if the process has the capability of this number.
func checkCapability(number int) string {
	return fmt.Sprintf("(( 0x$(awk '/^CapEff/ { print $2 }' /proc/self/status) >> %d & 1 ))", number)
}

// Escapes returns the escapes in the table of docs/development/attacks.md.
func Escapes() []Escape {
	return []Escape{
		{"another VM's disk, through a new device node", fromPrivileged, nil, "the device cgroup blocks it in unprivileged VMs", func(t EscapeTarget) string {
			return "rm -f /tmp/disk; mknod /tmp/disk b " + t.Device + " && dd if=/tmp/disk bs=1M count=64 2>/dev/null | grep -q -a " + t.DiskContent
		}},
		{"the node's kernel settings, in /proc/sys", fromPrivileged, nil, "read-only in unprivileged VMs", fixedCommand(rewriteFile("/proc/sys/kernel/core_pattern"))},
		{"the node's kernel settings, in a newly mounted /proc, and root on the node through `core_pattern`", fromAdmin, nil, "`SYS_ADMIN` is sufficient",
			fixedCommand(withMount("mount -t proc proc /tmp/mounted", rewriteFile("/tmp/mounted/sys/kernel/core_pattern")))},
		{"the `release_agent` of a cgroup hierarchy, and root on the node through it", fromAdmin, []string{SysAdmin, SysAdminAndReadSearch},
			"`SYS_ADMIN` is sufficient with cgroup v1, where VMs share the node's cgroup namespace",
			fixedCommand(`mkdir -p /tmp/mounted; for controller in $(awk 'NR > 1 { print $1 }' /proc/cgroups); do mount -t cgroup -o "$controller" cgroup /tmp/mounted 2>/dev/null && break; done
				(` + rewriteFile("/tmp/mounted/release_agent") + `); status=$?; umount /tmp/mounted; exit $status`)},
		{"the node's files, through open_by_handle_at", []string{Privileged, SysAdminAndReadSearch}, nil, "`DAC_READ_SEARCH`; since Linux 6.12, `SYS_ADMIN` can open directories", fixedCommand(openByHandleScript)},
		{"the device of the node's memory, /dev/mem", fromPrivileged, nil, "`SYS_RAWIO`; with STRICT_DEVMEM, Linux hides the memory of programs", fixedCommand(openMemoryScript)},
		{"loading a kernel module", fromPrivileged, nil, "`SYS_MODULE`", fixedCommand(loadModuleScript)},
		{"the node's cgroups", fromNone, nil, "a separate view of the hierarchy, which root with `SYS_ADMIN` can leave", fixedCommand("ls -d /sys/fs/cgroup/kubepods* /sys/fs/cgroup/*/kubepods*")},
		{"the node's processes", fromNone, nil, "PID namespace", fixedCommand("grep -qx kubelet /proc/[0-9]*/comm")},
		{"the node's network", fromNone, nil, "network namespace", fixedCommand("ip -o link | grep -q cali")},
		{"other VMs' directories on the node", fromNone, nil, "mount namespace", fixedCommand("ls -d /run/bosh-kubernetes-cpi")},
		{"the Kubernetes API, with credentials", fromNone, nil, "no service account token", fixedCommand("ls /var/run/secrets/kubernetes.io/serviceaccount/token")},
		{"the port of another VM's agent", fromAll, nil, "requires credentials; use a NetworkPolicy", func(t EscapeTarget) string { return connectCommand(t.Address, 6868) }},
		{"the kubelet's port", fromAll, nil, "requires credentials; use a NetworkPolicy", func(t EscapeTarget) string { return connectCommand(t.Node, t.KubeletPort) }},
	}
}

func connectCommand(address string, port int32) string {
	return fmt.Sprintf("timeout 5 bash -c '</dev/tcp/%s/%d'", address, port)
}
