//go:build linux

// Package attach has the life cycle of an attachment: it publishes its disk in a running VM, waits for a signal to stop, and unpublishes
// the disk when nothing uses it. It also has the exclusivity check, which removes a disk from a VM.
//
// Attachments and checks of different versions share these files in the VM's directory, which is /dev/bosh in the VM and /devices here: the
// device node CID, the lock .CID.lock, and .prepared. The VM can change them.
package attach

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"time"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/device"
	"bosh-kubernetes-cpi/cpi/node/lock"
	"bosh-kubernetes-cpi/cpi/node/process"
	"bosh-kubernetes-cpi/cpi/node/system"
)

const (
	blockVolume = "/dev/volume"      // the disk, with volumeMode Block
	image       = "/volume/disk.img" // the disk's image file, with volumeMode Filesystem

	attempts = 15

	minWait, maxWait = 20 * time.Millisecond, time.Second // for a disk that is in use
)

// pause is the time between attempts. Specs with many failed attempts shorten it.
var pause = 200 * time.Millisecond

// attachment is the attachment of a disk to a VM.
type attachment struct {
	sys  system.System
	disk api.Disk
	node string // the path of the disk's device node
	lock string // the path of the lock, which the attachment holds after it published the disk
}

func newAttachment(sys system.System, disk api.Disk) attachment {
	return attachment{sys: sys, disk: disk, node: "/devices/" + disk.CID, lock: "/devices/." + disk.CID + ".lock"}
}

// hold takes the lock, which reports to others that the disk is published. The caller releases it.
func (a attachment) hold() (*lock.Lock, error) {
	held, err := lock.Take(a.sys, a.lock)
	if err != nil {
		return nil, api.Errorf("disk-lock-failed", "cannot create the lock of disk %s in VM %s: %w", a.disk.CID, a.disk.VM, err)
	}
	a.removeVMDirectories()
	return held, nil
}

// waitForStop waits for a signal to stop, with little memory and without waking up: a node can have many attachments.
func waitForStop(ctx context.Context) {
	debug.SetGCPercent(20)
	debug.FreeOSMemory()
	<-ctx.Done()
}

// whileFree calls do while the device is open exclusively, and no process of the VM and no loop device uses it: nothing can mount it
// meanwhile. The error is device.ErrBusy if it is in use. Any other error leaves that open. A device that is gone is free, because nothing
// can write to it.
//
// Processes outside of the VM that have the device open without a mount, such as udev, do not count.
func (a attachment) whileFree(path string, numbers device.Numbers, do func() error) error {
	file, err := device.Claim(a.sys, path)
	if errors.Is(err, device.ErrGone) {
		return do()
	} else if err != nil {
		return err
	}
	defer file.Close()
	table, err := process.Read(a.sys)
	if err != nil {
		return err
	}
	users, err := table.Users(a.disk.VM, numbers.Dev())
	if err != nil {
		return err
	}
	loops, err := device.LoopsOver(a.sys, numbers)
	if err != nil {
		return err
	}
	if len(users)+len(loops) > 0 {
		return device.ErrBusy
	}
	return do()
}

// attempt calls do until it succeeds, for about 3 s, and returns the last error.
func attempt(ctx context.Context, do func() error) error {
	for number := 1; ; number++ {
		err := do()
		if err == nil || number == attempts {
			return err
		}
		if stopped := system.Pause(ctx, pause); stopped != nil {
			return errors.Join(err, stopped)
		}
	}
}

// insist calls do until it succeeds or the error is errReplaced. It logs other errors when they change.
func (a attachment) insist(numbers device.Numbers, do func() error) error {
	logged := ""
	for wait := minWait; ; wait = min(2*wait, maxWait) {
		err := do()
		if err == nil || errors.Is(err, errReplaced) {
			return err
		}
		if err.Error() != logged {
			logged = err.Error()
			slog.Warn("waiting until the disk is free", "disk", a.disk.CID, "cause", a.explain(numbers, err))
		}
		<-time.After(wait)
	}
}
