//go:build linux

// Package process finds the processes of a node or a VM, the VMs to which they belong, and the processes that use a disk.
//
// Processes exit and start meanwhile. An exit is not an error: see [system.Gone]. Any other error means that the answer would be
// incomplete, and is returned.
package process

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"bosh-kubernetes-cpi/cpi/node/system"
)

// Process is a process that ran when it was listed.
type Process struct {
	ID, Parent int    // in the PID namespace of this program
	Name       string // the process can choose it
	Exited     bool   // only its parent did not notice yet: a zombie
	VM         string // NAMESPACE/NAME, or "": see Read
	// Level is the number of PID namespaces in which the process has an ID, beginning with that of this program. InnerID is its ID in the
	// innermost one. Both are 0 in gVisor, which does not report them.
	Level, InnerID int
}

// maxRounds limits how often List reads processes again after their parents exited.
const maxRounds = 100

// List returns all processes that this program sees, sorted by ID, without their VMs. The list contains the parent of each process.
func List(sys system.System) ([]Process, error) {
	names, err := sys.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	found := map[int]Process{}
	for _, name := range names {
		if id, err := strconv.Atoi(name); err == nil {
			if err := update(sys, found, id); err != nil {
				return nil, err
			}
		}
	}
	if err := updateOrphans(sys, found); err != nil {
		return nil, err
	}
	processes := make([]Process, 0, len(found))
	for _, process := range found {
		processes = append(processes, process)
	}
	slices.SortFunc(processes, func(a, b Process) int { return cmp.Compare(a.ID, b.ID) })
	return processes, nil
}

// updateOrphans reads processes again if their parent exited before it was read. They have another parent now.
func updateOrphans(sys system.System, found map[int]Process) error {
	for range maxRounds {
		var orphans []Process
		for _, process := range found {
			if _, ok := found[process.Parent]; !ok && process.Parent != 0 {
				orphans = append(orphans, process)
			}
		}
		if len(orphans) == 0 {
			return nil
		}
		for _, orphan := range orphans {
			if err := update(sys, found, orphan.ID); err != nil {
				return err
			}
			if err := update(sys, found, found[orphan.ID].Parent); err != nil {
				return err
			}
		}
	}
	return errors.New("list processes: some processes have a parent that does not exist")
}

// update replaces the process in found by its current state, or removes it if it exited. Process 0 is the parent of processes from outside
// of this PID namespace.
func update(sys system.System, found map[int]Process, id int) error {
	if id == 0 {
		return nil
	}
	status, err := sys.ReadFile(fmt.Sprintf("/proc/%d/status", id))
	switch {
	case system.Gone(err):
		delete(found, id)
		return nil
	case err != nil:
		return fmt.Errorf("list processes: %w", err)
	}
	process, err := parseStatus(id, string(status))
	if err != nil {
		return fmt.Errorf("read the status of process %d: %w", id, err)
	}
	found[id] = process
	return nil
}

// parseStatus returns the process that has this content in /proc/PID/status.
func parseStatus(id int, status string) (Process, error) {
	process, complete := Process{ID: id}, false
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		var err error
		switch name {
		case "Name":
			process.Name = strings.TrimPrefix(value, "\t")
		case "State":
			process.Exited = strings.HasPrefix(strings.TrimSpace(value), "Z")
		case "PPid":
			complete = true
			process.Parent, err = strconv.Atoi(strings.TrimSpace(value))
		case "NSpid":
			if ids := strings.Fields(value); len(ids) > 0 {
				process.Level = len(ids)
				process.InnerID, err = strconv.Atoi(ids[len(ids)-1])
			}
		}
		if err != nil {
			return process, err
		}
	}
	if !complete {
		return process, errors.New("it has no parent")
	}
	return process, nil
}
