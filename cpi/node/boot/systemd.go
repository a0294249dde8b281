//go:build linux

package boot

import (
	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/boot/files"
	"bosh-kubernetes-cpi/cpi/node/boot/mounts"
)

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
	return v.saveFallbackNameServers(resolvConf)
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
