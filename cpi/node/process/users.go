//go:build linux

package process

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/system"
)

// Users returns the processes of this VM that use the device: one for each mount namespace in which a filesystem of the device is mounted,
// then those with a file, working directory or root directory in such a filesystem, even if it is no longer mounted at any path, and those
// that opened the device itself. An exclusive open of the device does not detect the last ones.
//
// It does not see files of a process that opens them meanwhile, and those of threads that share no files with their process. It looks only
// at processes of this VM, because others of the node cannot open its device node, and may use filesystems that do not respond.
func (t *Table) Users(vm string, device uint64) ([]api.User, error) {
	var users []api.User
	for _, mounted := range t.Mounted(device) {
		if mounted.VM == vm {
			users = append(users, mounted.User)
		}
	}
	finder := fileFinder{t.sys, device, t.mountsByID()}
	for _, e := range t.entries {
		if vm == "" || e.VM != vm {
			continue
		}
		path, found, err := finder.find(e.directory)
		if err != nil {
			return nil, fmt.Errorf("find the files of process %d (%s): %w", e.ID, e.Name, err)
		}
		if found {
			users = append(users, api.User{Process: e.ID, Name: e.Name, Path: path})
		}
	}
	return users, nil
}

// mountsByID returns the mounts of all processes.
func (t *Table) mountsByID() map[int]mount {
	mounts := map[int]mount{}
	for _, e := range t.entries {
		for _, mount := range e.mounts.mounts {
			mounts[mount.id] = mount
		}
	}
	return mounts
}

// fileFinder finds files of the device. The ID of its mount determines the device of a file, without asking the filesystem, which may not
// respond.
type fileFinder struct {
	sys    system.System
	device uint64
	mounts map[int]mount
}

// find returns the path of the first file of the process that is of the device.
func (f fileFinder) find(directory string) (path string, found bool, err error) {
	for _, name := range []string{"/cwd", "/root"} {
		path, found, err = f.check(directory+name, f.ofDirectory)
		if found || err != nil {
			return path, found, err
		}
	}
	descriptors, err := f.sys.ReadDir(directory + "/fd")
	if exited(err) {
		return "", false, nil
	} else if err != nil {
		return "", false, err
	}
	for _, descriptor := range descriptors {
		path, found, err = f.check(directory+"/fd/"+descriptor, func(link string) (bool, error) {
			return f.ofDescriptor(link, directory+"/fdinfo/"+descriptor)
		})
		if found || err != nil {
			return path, found, err
		}
	}
	return "", false, nil
}

// check returns the path of the file behind the link if it is of the device. A file that was closed meanwhile, and a file of an exited
// process, is not.
func (f fileFinder) check(link string, ofDevice func(link string) (bool, error)) (path string, found bool, err error) {
	found, err = ofDevice(link)
	if found {
		path, err = f.sys.Readlink(link)
	}
	if exited(err) {
		return "", false, nil
	}
	return path, found && err == nil, err
}

// ofDirectory reports whether the working directory or root directory behind the link is in a filesystem of the device.
func (f fileFinder) ofDirectory(link string) (bool, error) {
	id, err := f.sys.MountID(link)
	if errors.Is(err, unix.ESTALE) {
		return false, nil // see stat
	} else if err != nil {
		return false, err
	}
	if mount, ok := f.mounts[id]; ok {
		return mount.device == f.device, nil
	}
	return f.stat(link)
}

// ofDescriptor reports whether the open file behind the link is in a filesystem of the device, or the device itself.
func (f fileFinder) ofDescriptor(link, infoPath string) (bool, error) {
	info, err := f.sys.ReadFile(infoPath)
	if err != nil {
		return false, err
	}
	id, err := system.ParseMountID(string(info))
	if err != nil {
		return false, fmt.Errorf("read %s: %w", infoPath, err)
	}
	if mount, ok := f.mounts[id]; ok && (mount.device == f.device || !mount.isLocal()) {
		return mount.device == f.device, nil
	}
	return f.stat(link)
}

// localFilesystems are types of filesystems without a block device that can contain device nodes.
var localFilesystems = strings.Fields("aufs bcachefs btrfs devtmpfs overlay ramfs rootfs tmpfs unionfs zfs")

// isLocal reports whether the filesystem responds without a server or daemon, so that asking it is safe. Only such filesystems contain the
// device nodes of disks: those in /dev/bosh and /dev, and those that a root user creates in the container's filesystems.
func (m mount) isLocal() bool {
	return !strings.HasPrefix(m.filesystem, "fuse") && (unix.Major(m.device) != 0 || slices.Contains(localFilesystems, m.filesystem))
}

// stat reports whether the file is in a filesystem of the device, or the device itself. It is for files in local filesystems, and for those
// without a known mount: sockets and pipes, and files in a filesystem that is no longer mounted at any path. The latter may be that of the
// device, or one that does not respond, which is a usual reason for a lazy unmount.
func (f fileFinder) stat(link string) (bool, error) {
	stat, err := f.sys.CachedStat(link)
	if errors.Is(err, unix.ESTALE) {
		return false, nil // only network filesystems have stale files
	} else if err != nil {
		return false, err
	}
	return stat.Dev == f.device || stat.Mode&unix.S_IFMT == unix.S_IFBLK && stat.Rdev == f.device, nil
}
