//go:build linux

package boot

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/boot/files"
)

// unmountEtcFiles replaces the files in /etc that the kubelet mounts into every container by writable files with the same content. It keeps
// a mount that the container is not allowed to unmount.
func (v *vm) unmountEtcFiles(context.Context) error {
	for _, path := range []string{"/etc/resolv.conf", "/etc/hosts", "/etc/hostname"} {
		content, err := files.Read(v.sys, path)
		if err != nil {
			return err
		}
		if content == nil {
			continue
		}
		// The path may be a link to the mount point. EINVAL means that it is not one.
		err = v.sys.Unmount(path, 0)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, fs.ErrPermission) {
			continue
		}
		if err != nil {
			return err
		}
		if err := v.sys.WriteFile(path, content, 0o644); err != nil {
			v.log.Printf("cannot write %s: %v", path, err)
		}
	}
	return nil
}

// removeContent removes the files in a directory, which may not exist.
func (v *vm) removeContent(directory string) error {
	names, err := v.sys.ReadDir(directory)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, name := range names {
		if err := v.sys.RemoveAll(filepath.Join(directory, name)); err != nil {
			return err
		}
	}
	return nil
}
