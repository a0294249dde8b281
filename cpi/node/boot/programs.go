//go:build linux

package boot

import (
	"context"
	"path/filepath"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/boot/files"
)

// installMountWrappers installs a program that precedes mount(8) and umount(8) in the agent's PATH: see [MountWrapper].
func (v *vm) installMountWrappers(context.Context) error { return v.installPrograms("mount", "umount") }

// installRebootPrograms installs programs that restart a VM with runit: see [RebootProgram]. The stemcell's programs work only with
// systemd.
func (v *vm) installRebootPrograms(context.Context) error {
	if filepath.Base(v.init) != "runsvdir-start" {
		return nil
	}
	return v.installPrograms("reboot", "halt", "poweroff", "shutdown")
}

// installPrograms makes programs links to bosh-node, which recognizes them by their names. Its volume stays mounted in the VM.
func (v *vm) installPrograms(names ...string) error {
	if err := v.sys.MkdirAll(localPrograms, 0o755); err != nil {
		return err
	}
	for _, name := range names {
		if err := files.UpdateLink(v.sys, api.InVolume, filepath.Join(localPrograms, name)); err != nil {
			return err
		}
	}
	return nil
}
