//go:build linux

package process

import (
	"fmt"

	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/cpi/node/system"
)

// Table is a snapshot of all processes with their mounts.
type Table struct {
	sys     system.System
	entries []entry // sorted by ID
}

type entry struct {
	Process
	directory string // in /proc
	mounts    *mountTable
}

// Read returns all processes of the node. The processes of a VM are those that have its device directory mounted, and their descendants:
// containers that a job creates have other mounts.
func Read(sys system.System) (*Table, error) {
	processes, err := List(sys)
	if err != nil {
		return nil, err
	}
	table, reader := &Table{sys: sys}, mountReader{sys, map[string]*mountTable{}}
	byID := map[int]entry{}
	for _, process := range processes {
		mounts, directory, err := reader.read(process.ID)
		if err != nil {
			return nil, fmt.Errorf("read the mounts of process %d: %w", process.ID, err)
		}
		e := entry{process, directory, mounts}
		byID[process.ID] = e
		table.entries = append(table.entries, e)
	}
	for i, e := range table.entries {
		table.entries[i].VM = vmOf(e, byID)
	}
	return table, nil
}

// vmOf returns the VM of the process, or of its closest ancestor with a VM. After an ID was reused, a process can be its own ancestor.
func vmOf(e entry, byID map[int]entry) string {
	for range len(byID) {
		if vm := e.mounts.vm(); vm != "" {
			return vm
		}
		parent, ok := byID[e.Parent]
		if !ok {
			break
		}
		e = parent
	}
	return ""
}

// OfVM returns the processes of the VM, sorted by ID.
func (t *Table) OfVM(vm string) []Process {
	var found []Process
	for _, e := range t.entries {
		if vm != "" && e.VM == vm {
			found = append(found, e.Process)
		}
	}
	return found
}

// InitOf returns the process that is PID 1 in the VM's PID namespace. A process of the VM can be PID 1 of a nested namespace, too; such a
// process is in more namespaces.
func (t *Table) InitOf(vm string) (init Process, ok bool) {
	for _, process := range t.OfVM(vm) {
		if process.InnerID == 1 && (!ok || process.Level < init.Level) {
			init, ok = process, true
		}
	}
	return init, ok
}

// Mounted is a process that has a disk mounted.
type Mounted struct {
	api.User
	VM string // NAMESPACE/NAME, or ""
}

// Mounted returns a process of each mount namespace of the node in which a filesystem of the device is mounted, sorted by ID.
func (t *Table) Mounted(device uint64) []Mounted {
	var found []Mounted
	seen := map[string]bool{}
	for _, e := range t.entries {
		target, ok := e.mounts.targetOf(device)
		if !ok || seen[e.mounts.namespace] {
			continue
		}
		seen[e.mounts.namespace] = e.mounts.namespace != ""
		found = append(found, Mounted{api.User{Process: e.ID, Name: e.Name, Path: target, Mounted: true}, e.VM})
	}
	return found
}

// targetOf returns the first path at which a filesystem of the device is mounted.
func (t *mountTable) targetOf(device uint64) (string, bool) {
	for _, mount := range t.mounts {
		if mount.device == device {
			return mount.target, true
		}
	}
	return "", false
}
