//go:build linux

package boot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/boot/files"
	"bosh-kubernetes-cpi/cpi/node/boot/mounts"
	"bosh-kubernetes-cpi/cpi/node/lock"
)

// Files of the agent about its disks.
const (
	mountRecord  = agentDir + "/managed_disk_settings.json" // the CID of the mounted disk; not JSON
	disksOfAgent = agentDir + "/persistent_disk_hints.json"
)

// attachPeriod is the time between checks whether a disk is attached.
const attachPeriod = 200 * time.Millisecond

// disksAreHotPlugged reports whether disks are attached and detached while the VM runs, in a directory on the node. In a VM with
// disk_strategy: recreate, they are volumes of the VM Pod.
func (v *vm) disksAreHotPlugged() (bool, error) { return mounts.Is(v.sys, devices) }

// isAttached reports whether the disk has a device node and a running attachment. In a VM with disk_strategy: recreate, it may also be a
// directory.
func (v *vm) isAttached(cid string) (bool, error) {
	path := filepath.Join(devices, cid)
	hotPlugged, err := v.disksAreHotPlugged()
	if err != nil {
		return false, err
	}
	device, err := v.isDevice(path)
	if err != nil {
		return false, err
	}
	switch {
	case hotPlugged && device:
		return lock.Held(v.sys, filepath.Join(devices, "."+cid+".lock"))
	case hotPlugged, device:
		return device && !hotPlugged, nil
	}
	return mounts.Is(v.sys, path)
}

// knownDisks returns the sorted CIDs of the disks that the agent knows. ok is false if the agent's file is damaged, or does not exist, for
// example because it was on a tmpfs.
func (v *vm) knownDisks() (cids []string, ok bool, err error) {
	content, err := files.Read(v.sys, disksOfAgent)
	if err != nil || content == nil {
		return nil, false, err
	}
	disks, err := parseObject(content)
	if err != nil {
		return nil, false, nil //nolint:nilerr // damaged, for example by a power failure
	}
	return slices.Sorted(maps.Keys(disks)), true, nil
}

// mountPersistentDisk mounts the disk in the agent's record, before a job can start. The agent itself mounts only partitioned disks after a
// boot, and this CPI's disks are not partitioned.
func (v *vm) mountPersistentDisk(ctx context.Context) error {
	cid, err := v.diskToMount()
	if err != nil || cid == "" {
		return err
	}
	for tries := 0; ; tries++ {
		problem, err := v.tryMount(ctx, cid)
		if err != nil {
			return err
		}
		if problem == nil {
			v.log.Printf("disk %s is mounted at %s", cid, store)
			return nil
		}
		if tries%150 == 0 {
			v.log.Printf("waiting for disk %s to be attached before any job may start%s", cid, afterColon(problem))
		}
		if err := v.pause(ctx, attachPeriod); err != nil {
			return err
		}
	}
}

// errNotAttached is the problem of a disk that has no running attachment yet.
var errNotAttached = errors.New("not attached")

func afterColon(problem error) string {
	if errors.Is(problem, errNotAttached) {
		return ""
	}
	return ": " + problem.Error()
}

// diskToMount returns the CID of the disk in the agent's record, or "". It removes the record of a disk that the VM no longer has.
func (v *vm) diskToMount() (string, error) {
	known, ok, err := v.knownDisks()
	if err != nil {
		return "", err
	}
	cid, err := v.recordedDisk(known, ok)
	if err != nil || cid == "" {
		return "", err
	}
	if !isCID(cid) {
		return "", errDamagedRecord()
	}
	if ok && !slices.Contains(known, cid) {
		v.log.Printf("the VM no longer has disk %s according to the agent: removing the record that it was mounted", cid)
		return "", v.sys.Remove(mountRecord)
	}
	hotPlugged, err := v.disksAreHotPlugged()
	if err != nil {
		return "", err
	}
	if !hotPlugged {
		volume, err := files.Find(v.sys, filepath.Join(devices, cid))
		if err != nil {
			return "", err
		}
		if volume == nil {
			v.log.Printf("the VM no longer has disk %s as a volume: removing the record that it was mounted", cid)
			return "", v.sys.Remove(mountRecord)
		}
	}
	// The VM stopped while the agent migrated data from one disk to another. The agent's record does not show which of the two to use, and
	// the agent would fail to boot. The director knows it, and attaches the right disk to a new VM.
	if len(known) > 1 {
		return "", api.Errorf("disk-migration-interrupted", "the VM stopped in the middle of a migration between its disks; "+
			"recreate the VM, which keeps the data of its disks")
	}
	return cid, nil
}

// recordedDisk returns the content of the agent's record of its mounted disk, or "" if there is no record. The record can be empty after a
// power failure shortly after the disk was mounted. If the agent knows one disk only, that is the mounted disk: recordedDisk restores the
// record.
func (v *vm) recordedDisk(known []string, ok bool) (string, error) {
	record, err := files.Read(v.sys, mountRecord)
	if err != nil || record == nil {
		return "", err
	}
	cid := string(bytes.TrimRight(record, "\n"))
	if len(record) > 0 {
		return cid, nil
	}
	if !ok || len(known) > 1 {
		return "", errDamagedRecord()
	}
	if len(known) == 1 {
		cid = known[0]
	}
	return cid, files.Update(v.sys, mountRecord, []byte(cid), 0o644)
}

func errDamagedRecord() error {
	return api.Errorf("agent-record-damaged", "the agent's record of its mounted disk is damaged, for example by a power failure; "+
		"recreate the VM, which keeps the data of its disks")
}

// isCID reports whether a text can be the name of a disk in the directory of devices, and not another path.
func isCID(text string) bool { return filepath.Base(text) == text && text[0] != '.' && text != "/" }

// tryMount mounts a disk if it is attached. problem is why it is not mounted yet.
func (v *vm) tryMount(ctx context.Context, cid string) (problem, err error) {
	attached, err := v.isAttached(cid)
	if err != nil {
		return nil, err
	}
	if !attached {
		return errNotAttached, nil
	}
	options, err := v.sys.ReadFile(settings + "/mount-options")
	if err != nil {
		return nil, err
	}
	device, err := v.isDevice(filepath.Join(devices, cid))
	if err != nil {
		return nil, err
	}
	if !device {
		return v.mountStore(ctx, cid, string(options), "--bind")
	}
	return v.mountFilesystem(ctx, cid, string(options))
}

// mountStore runs mount(8), which knows the filesystems and their options, and the wrapper of which is only for the agent.
func (v *vm) mountStore(ctx context.Context, cid, options string, arguments ...string) (problem, err error) {
	arguments = append(arguments, v.sys.Path(filepath.Join(devices, cid)), v.sys.Path(store))
	if options != "" {
		arguments = append(arguments, "-o", options)
	}
	output, err := v.sys.Run(ctx, v.sys.Path("/bin/mount"), arguments...)
	if err != nil {
		return nil, err
	}
	if output.Status != 0 {
		return fmt.Errorf("mount: exit status %d: %s", output.Status, output.Stderr), nil
	}
	return nil, nil
}

// waitForOtherDisks waits for the other disks of the VM before a job can start: additional disks of the instance group, and dynamic disks,
// for which the agent creates links. It waits for at most one minute in total, because the agent may not know that a disk is gone.
func (v *vm) waitForOtherDisks(ctx context.Context) error {
	hotPlugged, err := v.disksAreHotPlugged()
	if err != nil || !hotPlugged {
		return err
	}
	known, _, err := v.knownDisks()
	if err != nil {
		return err
	}
	dynamic, err := v.sys.ReadDir(vcap + "/data/dynamic_disks")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	tries := 300
	for _, cid := range append(known, dynamic...) {
		if err := v.waitForDisk(ctx, cid, &tries); err != nil {
			return err
		}
	}
	return nil
}

// waitForDisk waits until a disk is attached, for at most this number of tries.
func (v *vm) waitForDisk(ctx context.Context, cid string, tries *int) error {
	for waiting := false; ; waiting = true {
		attached, err := v.isAttached(cid)
		if err != nil || attached {
			return err
		}
		if !waiting {
			v.log.Printf("waiting at most one minute for disk %s to be attached", cid)
		}
		if *tries == 0 {
			v.log.Printf("starting without disk %s", cid)
			return nil
		}
		*tries--
		if err := v.pause(ctx, attachPeriod); err != nil {
			return err
		}
	}
}
