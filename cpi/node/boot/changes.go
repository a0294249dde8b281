//go:build linux

package boot

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/boot/files"
	"bosh-kubernetes-cpi/cpi/node/boot/mounts"
)

// errReadOnly is the error if the kernel mounted an overlay read-only.
var errReadOnly = errors.New("the kernel mounted an overlay read-only")

// overlay is a directory of the stemcell, with the changes of the VM.
type overlay struct {
	directory string // of the stemcell
	changes   string // on the ephemeral disk
}

func (o overlay) upper() string { return o.changes + "/upper" }

// persistChanges keeps changes in these directories, such as users, keys, configuration and data, on the ephemeral disk, so that they
// outlive the container. Unchanged files are the stemcell's. The programs in /usr are always the stemcell's, and the agent mounts /var/log.
//
// If the container is not allowed to mount, or the filesystem of the ephemeral disk does not support overlays, a restart loses the changes.
func (v *vm) persistChanges(context.Context) error {
	for _, name := range []string{"etc", "root", "home", "opt", "srv", "usr/local", "var/lib", "var/spool"} {
		o := overlay{directory: "/" + name, changes: ephemeralDisk + "/changes/" + name}
		exists, err := files.IsDirectory(v.sys, o.directory)
		if err != nil {
			return err
		}
		if !exists {
			continue
		}
		target, err := v.mountChanges(o)
		if err != nil {
			return fmt.Errorf("mount changes of %s: %w", o.directory, err)
		}
		if target == "" {
			return nil
		}
		if err := mounts.Replace(v.sys, target, o.directory); err != nil {
			return fmt.Errorf("mount changes of %s: %w", o.directory, err)
		}
	}
	return nil
}

// mountChanges mounts the directory with its changes at a new directory, and returns that. On a full disk, the changes of earlier starts
// are visible, and new changes are in memory. It returns "" if changes are lost when the VM restarts.
func (v *vm) mountChanges(o overlay) (target string, err error) {
	if err := v.createUpper(o); err != nil && !isNoSpace(err) {
		return "", err
	}
	target, err = mounts.Temporary(v.sys, "new")
	if err != nil {
		return "", err
	}
	err = v.mountWritable(o, target)
	if err == nil {
		return target, nil
	}
	full, fullErr := v.diskFull(1)
	if fullErr != nil {
		return "", fullErr
	}
	if full {
		if err = v.mountInMemory(o, target); err == nil {
			v.log.Printf("the ephemeral disk has no space for changes in %s: new changes are lost when the VM restarts", o.directory)
			return target, nil
		}
	}
	if !mounts.NotAllowed(err) && !isNoSpace(err) && !errors.Is(err, errReadOnly) {
		return "", err
	}
	v.log.Printf("changes outside of /var/vcap are lost when the VM restarts: %v", err)
	return "", v.sys.Remove(target)
}

// createUpper creates the directory for changes, complete or not at all.
func (v *vm) createUpper(o overlay) error {
	exists, err := files.IsDirectory(v.sys, o.upper())
	if err != nil || exists {
		return err
	}
	next := o.changes + "/new"
	for _, path := range []string{o.changes + "/work", next} {
		if err := v.sys.MkdirAll(path, 0o755); err != nil {
			return err
		}
	}
	if err := v.copyPermissions(o.directory, next); err != nil {
		return err
	}
	return v.sys.Rename(next, o.upper())
}

// copyPermissions copies the owner and the permissions of a directory.
func (v *vm) copyPermissions(from, to string) error {
	stat, err := v.sys.Stat(from)
	if err != nil {
		return err
	}
	if err := v.sys.Chown(to, int(stat.Uid), int(stat.Gid)); err != nil {
		return err
	}
	return v.sys.Chmod(to, files.Mode(stat))
}

// mountWritable mounts the overlay. Without space for the work directory, the kernel may mount it read-only without an error.
func (v *vm) mountWritable(o overlay, target string) error {
	if err := v.mountOverlay(v.sys.Path(o.directory), o.changes, target); err != nil {
		return err
	}
	stat, err := v.sys.Statfs(target)
	if err != nil {
		return err
	}
	if stat.Flags&unix.ST_RDONLY == 0 {
		return nil
	}
	if err := v.sys.Unmount(target, 0); err != nil {
		return err
	}
	return errReadOnly
}

// mountOverlay mounts the directories lower, separated by colons, with the directories upper and work in changes.
func (v *vm) mountOverlay(lower, changes, target string) error {
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work,index=off", lower, v.sys.Path(changes), v.sys.Path(changes))
	return v.sys.Mount("overlay", target, "overlay", 0, options)
}

// mountInMemory mounts an overlay with the changes of earlier starts. It keeps new changes in memory until it is unmounted.
func (v *vm) mountInMemory(o overlay, target string) error {
	lower, top := v.sys.Path(o.directory), o.directory
	changed, err := files.IsDirectory(v.sys, o.upper())
	if err != nil {
		return err
	}
	if changed {
		lower, top = v.sys.Path(o.upper())+":"+lower, o.upper()
	}
	memory, err := mounts.Temporary(v.sys, "memory")
	if err != nil {
		return err
	}
	if err := v.sys.Mount("tmpfs", memory, "tmpfs", 0, ""); err != nil {
		return err
	}
	err = v.mountAbove(lower, top, memory, target)
	if discardErr := mounts.Discard(v.sys, memory); err == nil {
		err = discardErr
	}
	return err
}

func (v *vm) mountAbove(lower, top, memory, target string) error {
	for _, name := range []string{"upper", "work"} {
		if err := v.sys.Mkdir(filepath.Join(memory, name), 0o755); err != nil {
			return err
		}
	}
	if err := v.copyPermissions(top, filepath.Join(memory, "upper")); err != nil {
		return err
	}
	return v.mountOverlay(lower, memory, target)
}
