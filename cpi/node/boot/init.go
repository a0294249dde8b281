//go:build linux

package boot

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/boot/cgroups"
	"bosh-kubernetes-cpi/cpi/node/boot/files"
	"bosh-kubernetes-cpi/cpi/node/boot/mounts"
)

// findInit returns the path of the init program: the requested one, or the stemcell's.
func (v *vm) findInit(requested string) (string, error) {
	const runit = "/usr/sbin/runsvdir-start"
	if requested != "" {
		return requested, nil
	}
	executable, err := files.IsExecutable(v.sys, runit)
	if executable {
		return runit, nil
	}
	return "/sbin/init", err
}

// isSystemd reports whether the init program is systemd.
func (v *vm) isSystemd() (bool, error) {
	path, err := v.sys.EvalSymlinks(v.init)
	return filepath.Base(path) == "systemd", err
}

// startInit replaces this process by the init program.
func (v *vm) startInit(ctx context.Context) error {
	systemd, err := v.isSystemd()
	if err != nil {
		return err
	}
	if systemd {
		if err := v.prepareSystemd(); err != nil {
			return err
		}
		// systemd makes mounts shared, except in a container. With shared mounts, a disk is also unmounted in the mount namespaces of all
		// services.
		if err := v.sys.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
			return err
		}
	}
	if err := (cgroups.Cgroups{Sys: v.sys, Log: v.log, Systemd: systemd, Pause: v.pause}).Enter(ctx); err != nil {
		return err
	}
	if err := v.sys.ResetSignals(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil { // the init program does not get an earlier signal
		return err
	}
	environment := slices.DeleteFunc(slices.Clone(v.environment), func(variable string) bool {
		return strings.HasPrefix(variable, "container=")
	})
	return v.sys.Exec(v.init, []string{v.init}, append(environment, "container=kubernetes"))
}

// maskedUnits are units of systemd that would affect the node's devices, consoles and kernel.
var maskedUnits = []string{
	"systemd-udevd.service", "systemd-udevd-control.socket", "systemd-udevd-kernel.socket",
	"systemd-udev-trigger.service", "systemd-udev-settle.service", "systemd-modules-load.service",
	"systemd-sysctl.service", "systemd-binfmt.service", "proc-sys-fs-binfmt_misc.automount",
	"sys-kernel-debug.mount", "sys-kernel-tracing.mount", "getty.target", "console-getty.service",
}

// prepareSystemd mounts an empty /run, and masks units.
func (v *vm) prepareSystemd() error {
	resolvConf, err := files.Read(v.sys, "/etc/resolv.conf") // before /run is empty, which may contain it
	if err != nil {
		return err
	}
	if err := v.mountEmptyRun(); err != nil {
		return err
	}
	for _, directory := range []string{"/run/systemd/system", "/run/systemd/resolved.conf.d"} {
		if err := v.sys.MkdirAll(directory, 0o755); err != nil {
			return err
		}
	}
	for _, unit := range maskedUnits {
		if err := v.sys.Symlink("/dev/null", "/run/systemd/system/"+unit); err != nil {
			return err
		}
	}
	// The VM uses the cluster's name servers until the agent configures others.
	link, err := v.sys.Readlink("/etc/resolv.conf")
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, fs.ErrNotExist) { // EINVAL: not a link
		return err
	}
	if !strings.Contains(link, "systemd/resolve") {
		return nil
	}
	return v.sys.WriteFile("/run/systemd/resolved.conf.d/kubernetes.conf", fallbackNameServers(string(resolvConf)), 0o644)
}

// fallbackNameServers returns the configuration of systemd-resolved with the name servers and search domains of a resolv.conf(5).
func fallbackNameServers(resolvConf string) []byte {
	var servers, domains []string
	for line := range strings.Lines(resolvConf) {
		switch fields := strings.Fields(line); {
		case len(fields) > 1 && fields[0] == "nameserver":
			servers = append(servers, fields[1])
		case len(fields) > 1 && fields[0] == "search":
			domains = fields[1:] // the last line counts
		}
	}
	return []byte("[Resolve]\nFallbackDNS=" + strings.Join(servers, " ") + "\nDomains=" + strings.Join(domains, " ") + "\n")
}

func (v *vm) mountEmptyRun() error {
	target, err := mounts.Temporary(v.sys, "new")
	if err != nil {
		return err
	}
	if err := v.sys.Mount("tmpfs", target, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return err
	}
	return mounts.Replace(v.sys, target, "/run")
}
