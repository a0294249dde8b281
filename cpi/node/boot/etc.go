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

// saveNameServers keeps the Pod's name servers if the VM's networks have none. With resolvconf, the agent rewrites resolv.conf with the
// name servers of the networks. prepareSystemd does the same for systemd. The image's /run may contain the name servers of the host on
// which the stemcell was built; on other VMs, /run is empty at boot.
func (v *vm) saveNameServers(context.Context) error {
	const tail = "/etc/resolvconf/resolv.conf.d/tail"
	exists, err := files.IsDirectory(v.sys, filepath.Dir(tail))
	if err != nil || !exists {
		return err
	}
	if err := v.removeContent("/run/resolvconf/interface"); err != nil {
		return err
	}
	if err := v.sys.Remove(tail); err != nil {
		return err
	}
	networks, err := files.Read(v.sys, settings+"/name-servers")
	if err != nil || len(networks) > 0 {
		return err
	}
	content, err := v.sys.ReadFile("/etc/resolv.conf")
	if err != nil {
		return err
	}
	return v.sys.WriteFile(tail, content, 0o644)
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
