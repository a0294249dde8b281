//go:build linux

package attach

import (
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	vmDirectories = "/proc/1/root/run/bosh-kubernetes-cpi"
	podLogs       = "/proc/1/root/var/log/pods"
	minAge        = time.Hour
)

// removeVMDirectories removes the empty directories of VMs that left this node. The kubelet keeps a log directory for each Pod from before
// its containers start until the Pod is gone. If it has none for this VM, it keeps them elsewhere. What fails is done by the next
// attachment.
func (a attachment) removeVMDirectories() {
	pods, err := a.sys.ReadDir(podLogs)
	if err != nil || !hasPod(pods, a.disk.VM) {
		return
	}
	namespaces, err := a.sys.ReadDir(vmDirectories)
	if err != nil {
		return
	}
	for _, namespace := range namespaces {
		names, err := a.sys.ReadDir(path.Join(vmDirectories, namespace))
		if err != nil {
			continue
		}
		for _, name := range names {
			vm := path.Join(namespace, name)
			if !hasPod(pods, vm) && a.isOldDirectory(path.Join(vmDirectories, vm)) {
				_ = a.sys.Remove(path.Join(vmDirectories, vm)) // fails unless it is empty
			}
		}
	}
}

// hasPod reports whether there is a log directory NAMESPACE_NAME_UID of the VM.
func hasPod(pods []string, vm string) bool {
	prefix := strings.Replace(vm, "/", "_", 1) + "_"
	return slices.ContainsFunc(pods, func(pod string) bool { return strings.HasPrefix(pod, prefix) })
}

func (a attachment) isOldDirectory(directory string) bool {
	stat, err := a.sys.Lstat(directory)
	return err == nil && stat.Mode&unix.S_IFMT == unix.S_IFDIR && time.Since(time.Unix(stat.Mtim.Unix())) > minAge
}
