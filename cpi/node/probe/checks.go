//go:build linux

package probe

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/api"
)

// checks returns the checks in the order of the report.
func (n *node) checks(request api.NodeProbe, apiServer string) []check {
	return []check{
		{"loop", n.hasLoopDevices},
		{"overlay", n.hasOverlay},
		{"ext4", n.hasFilesystem("ext4")},
		{"xfs", n.hasFilesystem("xfs")},
		{"dummy", n.hasLinkType("dummy")},
		{"bridge", n.hasLinkType("bridge")},
		{"user-namespaces", n.succeeds("unshare", "--user", "--map-root-user", "true")},
		{"apparmor", n.hasAppArmor},
		{"xfs-quotas", n.hasXFSQuotas},
		{"ip-forwarding", n.canForward},
		{"nat", n.succeeds("iptables", "--wait", "--table", "nat", "--list-rules")},
		// Another program, because Go does not restore the limit after this process changed it.
		{"open-files", n.succeeds("prlimit", "--nofile=524288", "true")},
		// The C library resolves the names for jobs.
		{"dns", n.succeeds("getent", "ahosts", "kubernetes.default.svc")},
		{"api", func(ctx context.Context) error { return connect(ctx, apiServer) }},
		{"hairpin", func(ctx context.Context) error { return connectToItself(ctx, request.Service) }},
	}
}

// succeeds returns a check that a program of the stemcell succeeds.
func (n *node) succeeds(name string, arguments ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := n.sys.MustRun(ctx, name, arguments...)
		return err
	}
}

// hasLoopDevices returns nil if there is a free loop device, or the kernel can create one.
func (n *node) hasLoopDevices(context.Context) error {
	const path = "/dev/loop-control"
	exists, err := n.sys.Exists(path)
	if err != nil {
		return err
	}
	if !exists {
		if err := n.sys.Mknod(path, unix.S_IFCHR|0o600, unix.Mkdev(10, 237)); err != nil {
			return err
		}
	}
	control, err := n.sys.Open(path, unix.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer control.Close() // it is only read

	return control.Ioctl("LOOP_CTL_GET_FREE", func(descriptor int) error {
		_, err := unix.IoctlRetInt(descriptor, unix.LOOP_CTL_GET_FREE)
		return err
	})
}

// hasOverlay returns nil if an overlay can be mounted.
func (n *node) hasOverlay(context.Context) error {
	for _, name := range []string{"/lower", "/upper", "/work", "/merged"} {
		if err := n.sys.MkdirAll(directory+name, 0o755); err != nil {
			return err
		}
	}
	path := n.sys.Path(directory)
	data := fmt.Sprintf("lowerdir=%s/lower,upperdir=%s/upper,workdir=%s/work", path, path, path)
	if err := n.sys.Mount("overlay", directory+"/merged", "overlay", 0, data); err != nil {
		return err
	}
	return n.sys.Unmount(directory+"/merged", unix.MNT_DETACH)
}

// hasFilesystem returns a check that the kernel supports the filesystem, or loads its module for a mount. ENODEV means that it does not.
// Any other error is about /dev/null, which is not a block device, or means that this container is not allowed to mount.
func (n *node) hasFilesystem(filesystem string) func(context.Context) error {
	return func(context.Context) error {
		err := n.sys.Mount("/dev/null", directory, filesystem, 0, "")
		if errors.Is(err, unix.ENODEV) {
			return err
		}
		return nil
	}
}

// hasLinkType returns a check that a network link of this type can be created.
func (n *node) hasLinkType(linkType string) func(context.Context) error {
	return func(ctx context.Context) error {
		if _, err := n.sys.MustRun(ctx, "ip", "link", "add", "bosh-probe", "type", linkType); err != nil {
			return err
		}
		_, err := n.sys.MustRun(ctx, "ip", "link", "delete", "bosh-probe")
		return err
	}
}

func (n *node) hasAppArmor(context.Context) error {
	enabled, err := n.sys.ReadFile("/sys/module/apparmor/parameters/enabled")
	if err == nil && strings.TrimSpace(string(enabled)) != "Y" {
		err = errors.New("AppArmor is not enabled")
	}
	return err
}

func (n *node) hasXFSQuotas(context.Context) error {
	_, err := n.sys.Stat("/proc/fs/xfs/xqmstat")
	return err
}

func (n *node) canForward(context.Context) error {
	file, err := n.sys.Open("/proc/sys/net/ipv4/ip_forward", unix.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer file.Close() // the kernel writes nothing later

	return file.WriteAt([]byte("1\n"), 0)
}
