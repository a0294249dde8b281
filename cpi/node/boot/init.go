//go:build linux

package boot

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/boot/cgroups"
	"bosh-kubernetes-cpi/cpi/node/boot/files"
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
