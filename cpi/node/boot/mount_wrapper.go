//go:build linux

package boot

import (
	"slices"
	"strings"

	"bosh-kubernetes-cpi/cpi/node/boot/mounts"
	"bosh-kubernetes-cpi/cpi/node/system"
)

// MountWrapper replaces this process by mount(8) or umount(8). It handles two cases, and passes on all other calls unchanged:
//
//   - A Filesystem disk of a VM with disk_strategy: recreate is a directory, mounted at /dev/bosh/CID. The agent would mount it as a
//     device, and later unmount it at /dev/bosh/CID instead of its own mount point. The agent's option BindMountPersistentDisk would apply
//     to all disks of the VM. MountWrapper binds the directory, and unmounts it where it is bound.
//   - The agent binds directories such as /tmp and /var/log to themselves, and remounts them with options. They are on a filesystem of the
//     node. Without the option bind, the options would apply to that whole filesystem.
//
// It returns nil if there is nothing to unmount.
func MountWrapper(sys system.System, name string, arguments, environment []string) error {
	all, err := mounts.Read(sys)
	if err != nil {
		return err
	}
	passed, run := wrapMount(all, name, arguments)
	if !run {
		return nil
	}
	program := "/bin/" + name
	return sys.Exec(program, append([]string{program}, passed...), environment)
}

// wrapMount returns the arguments for the real program. run is false if it must not run.
func wrapMount(all mounts.Mounts, name string, arguments []string) (passed []string, run bool) {
	if isRemount(arguments) && slices.ContainsFunc(arguments, func(path string) bool { return isBound(all, path) }) {
		return append(slices.Clone(arguments), "-o", "bind"), true
	}
	if len(arguments) == 0 || !strings.HasPrefix(arguments[0], devices+"/") {
		return arguments, true
	}
	disk, ok := all.At(arguments[0])
	switch {
	case !ok:
		return arguments, true
	case name == "mount":
		return append([]string{"--bind"}, arguments...), true
	}
	var targets []string
	for _, mount := range slices.Backward(all) {
		if mount.Device == disk.Device && mount.Root == disk.Root && mount.Target != disk.Target {
			targets = append(targets, mount.Target)
		}
	}
	return targets, len(targets) > 0
}

// isRemount reports whether the options contain remount, but not bind.
func isRemount(arguments []string) bool {
	var options []string
	for _, argument := range arguments {
		options = append(options, strings.FieldsFunc(strings.TrimPrefix(argument, "-o"), func(r rune) bool {
			return r == ' ' || r == ',' || r == '='
		})...)
	}
	return slices.Contains(options, "remount") && !slices.Contains(options, "bind")
}

// isBound reports whether the path is a directory of a filesystem, and not its root.
func isBound(all mounts.Mounts, path string) bool {
	mount, ok := all.At(path)
	return ok && mount.Root != "/"
}
