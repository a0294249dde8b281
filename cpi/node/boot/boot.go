//go:build linux

// Package boot is PID 1 of a VM's container, until it becomes the stemcell's init program.
//
// It makes the start of the container look like the boot of a VM: /var/vcap has its previous content, the agent finds its settings, and the
// persistent disk is mounted before a job can write to /var/vcap/store.
package boot

import (
	"context"
	"errors"
	"io/fs"
	"log"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/boot/files"
	"bosh-kubernetes-cpi/cpi/node/boot/mounts"
	"bosh-kubernetes-cpi/cpi/node/system"
)

// Paths in a VM.
const (
	ephemeralDisk = "/bosh/ephemeral-disk"
	settings      = "/bosh/settings"   // the Secret with the agent settings
	booted        = "/bosh/pod/booted" // "true" if the VM has booted before: an annotation of its Pod, by the downward API
	devices       = "/dev/bosh"
	vcap          = "/var/vcap"
	agentDir      = vcap + "/bosh"
	agentConfig   = agentDir + "/agent.json"
	store         = vcap + "/store"
	localPrograms = "/usr/local/sbin" // precedes the stemcell's directories in the agent's PATH
)

// errStopped is the error after a signal to stop.
var errStopped = errors.New("stopped before the init program started")

// vm is a VM that starts.
type vm struct {
	sys         system.System
	log         *log.Logger
	environment []string
	init        string
	agentConfig []byte // the image's agent.json
	pause       func(context.Context, time.Duration) error
	isDevice    func(path string) (bool, error)
}

func newVM(sys system.System, environment []string) *vm {
	return &vm{
		sys: sys, log: log.New(log.Writer(), "vm-start: ", 0), environment: environment, pause: system.Pause,
		isDevice: func(path string) (bool, error) { return files.IsDevice(sys, path) },
	}
}

// Start prepares the VM, and replaces this process by the init program: the stemcell's if init is empty. It returns only if it fails. An
// error with the code agent-record-damaged, disk-migration-interrupted, ephemeral-disk-lost, image-not-stemcell, init-not-found or
// wrong-disk recurs at the next start. environment is the container's.
//
// The signals that stop a container end Start with an error, because the kernel delivers a signal to PID 1 only if it has a handler.
func Start(sys system.System, init string, environment []string) error {
	// The cgroup namespace of the VM is entered by one thread, which then executes the init program.
	runtime.LockOSThread()
	ctx, stop := system.WithStop(context.Background())
	defer stop()
	err := newVM(sys, environment).start(ctx, init)
	if ctx.Err() != nil {
		return errStopped
	}
	return err
}

// start runs all steps of the boot, in an order that matters.
func (v *vm) start(ctx context.Context, init string) error {
	if err := v.checkImage(init); err != nil {
		return err
	}
	if err := v.checkEphemeralDisk(); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{
		v.disableGroupKill,
		v.raiseLimits,
		v.freeReserve,
		v.unmountEtcFiles,
		v.saveNameServers,
		v.persistChanges,
		v.saveAPIServerURL,
		v.mountVcap,
		v.mountCertificates,
		v.linkMonitState,
		v.configureAgent,
		v.installMountWrappers,
		v.installRebootPrograms,
		v.allowDevices,
		v.resetSharedMemory,
		v.createStore,
		v.mountPersistentDisk,
		v.waitForOtherDisks,
		v.createReserve,
		v.startLXCFSMounts,
		v.startInit,
	} {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// checkImage finds the init program, and reads the image's agent.json, before mountVcap hides it.
func (v *vm) checkImage(init string) (err error) {
	if v.init, err = v.findInit(init); err != nil {
		return err
	}
	executable, err := files.IsExecutable(v.sys, v.init)
	if err != nil {
		return err
	}
	if !executable {
		return api.Errorf("init-not-found", "the stemcell has no init program %s; set cloud_properties.init", v.init)
	}
	v.agentConfig, err = v.sys.ReadFile(agentConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return api.Errorf("image-not-stemcell", "the image is not a BOSH stemcell: %s not found", agentConfig)
	}
	return err
}

// allowDevices makes the device nodes of disks usable. The VM's directory on the node may be on a filesystem that is mounted with nodev.
func (v *vm) allowDevices(context.Context) error {
	hotPlugged, err := v.disksAreHotPlugged()
	if err != nil || !hotPlugged {
		return err
	}
	return mounts.Remount(v.sys, devices, unix.MS_RDONLY|unix.MS_NODEV)
}

// resetSharedMemory empties /dev/shm, which the container of the last boot left to this one, and sets its sticky bit, as on other VMs. In a
// volume of a Pod, any user can remove all files. The sticky bit limits that to the owner of a file.
func (v *vm) resetSharedMemory(context.Context) error {
	const directory = "/dev/shm"
	exists, err := files.IsDirectory(v.sys, directory)
	if err != nil || !exists {
		return err
	}
	names, err := v.sys.ReadDir(directory)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := v.sys.RemoveAll(filepath.Join(directory, name)); err != nil {
			return err
		}
	}
	return v.sys.Chmod(directory, fs.ModeSticky|0o777)
}

func (v *vm) createStore(context.Context) error { return v.sys.MkdirAll(store, 0o755) }
