package history

import "math"

// diskState is the state of a disk as BOSH can observe it.
type diskState struct {
	exists      bool
	hasVolume   bool   // true after the first attachment
	vm          string // the VM to which the disk is attached, or ""
	sizeMiB     int
	trace       trace // left by an unsuccessful attach_disk: get_disks returns the disk, and detach_disk for that VM removes the trace
	detachTrace trace // left by a detach_disk: other detach_disk calls wait for it, even if the disk is deleted meanwhile
	deletedBy   int64 // latest time of the deletion, if an attach_disk returned DiskNotFound; otherwise 0
}

// trace is the part of a call that other calls can observe until the call ends, or indefinitely if it was killed.
type trace struct {
	vm      string // "" if there is no trace
	callEnd int64  // latest end of the call
	expires int64  // latest time at which the trace disappears by itself
}

// newTrace returns the trace of a call.
func newTrace(c Call) trace {
	switch {
	case c.Outcome == Killed:
		return trace{c.VM, c.Ended + maxEffectDelay, math.MaxInt64}
	case c.uncertain():
		return trace{c.VM, c.Ended + maxEffectDelay, c.Ended + maxEffectDelay}
	}
	return trace{c.VM, c.Ended, c.Ended}
}

// nextStates returns the possible states after the call, or none if its outcome is impossible in this state.
func (d diskState) nextStates(c Call) (states []diskState) {
	for _, current := range d.statesAtCall(c) {
		states = append(states, current.apply(c)...)
	}
	return states
}

// statesAtCall returns the states that the call may find: a trace may have expired by then. It returns none if the disk must already be deleted.
func (d diskState) statesAtCall(c Call) []diskState {
	withoutTrace := d
	withoutTrace.trace = trace{}
	switch {
	case d.exists && d.deletedBy != 0 && c.Started >= d.deletedBy:
		return nil
	case d.trace.vm == "" || c.Ended < d.trace.expires:
		return []diskState{d}
	case c.Started < d.trace.expires:
		return []diskState{d, withoutTrace}
	}
	return []diskState{withoutTrace}
}

// apply returns the possible states after the call. detach_disk and delete_disk may also succeed if a concurrent call did the same.
func (d diskState) apply(c Call) []diskState {
	switch c.Method {
	case "attach_disk":
		return d.afterAttach(c)
	case "detach_disk":
		detached := d
		detached.vm, detached.trace, detached.detachTrace = "", trace{}, newTrace(c)
		alreadyDetached := d.exists && d.vm == "" || d.detachTrace.vm == c.VM && c.Started < d.detachTrace.callEnd
		return d.afterChange(c, alreadyDetached || d.attachedTo(c.VM), detached)
	case "delete_disk":
		return d.afterChange(c, !d.exists || d.canDelete(c), diskState{trace: d.trace, detachTrace: d.detachTrace})
	case "resize_disk":
		grown := d
		grown.sizeMiB = c.SizeMiB
		possible := c.SizeMiB == d.sizeMiB || c.SizeMiB > d.sizeMiB && d.hasVolume
		return d.afterChange(c, d.exists && d.vm == "" && possible, grown)
	case "snapshot_disk", "set_disk_metadata":
		return d.afterChange(c, d.exists, d)
	case "has_disk":
		return d.afterQuery(c, d.exists)
	case "get_disks":
		return d.afterQuery(c, d.attachedTo(c.VM))
	}
	return nil
}

// attachedTo reports whether the disk is attached to the VM, or has a trace of an attempt to attach it.
func (d diskState) attachedTo(vm string) bool { return d.vm == vm || d.trace.vm == vm }

// canDelete reports whether the call can delete the disk: it is not attached, and has no trace from before the call.
func (d diskState) canDelete(c Call) bool {
	return d.vm == "" && (d.trace.vm == "" || c.Started < d.trace.callEnd)
}

// afterAttach returns the possible states after attach_disk. An unsuccessful call may provision the volume or leave a trace, even if the
// disk was deleted during the call.
func (d diskState) afterAttach(c Call) []diskState {
	possible := d.exists && (d.vm == "" || d.vm == c.VM) && (d.trace.vm == "" || d.trace.vm == c.VM)
	states := d.afterChange(c, possible, diskState{exists: true, hasVolume: true, vm: c.VM, sizeMiB: d.sizeMiB})
	if !c.uncertain() && c.Outcome != NotFound || d.vm != "" || (d.trace.vm != "" && d.trace.vm != c.VM) {
		return states
	}
	withVolume, withTrace := d, d
	withVolume.hasVolume = d.exists
	withTrace.trace = trace{c.VM, max(c.Ended, d.trace.callEnd), max(c.Ended, d.trace.expires)}
	if c.Outcome == Killed {
		withTrace.trace.expires = math.MaxInt64
	}
	volumeAndTrace := withTrace
	volumeAndTrace.hasVolume = d.exists
	unsuccessful := []diskState{withVolume, withTrace, volumeAndTrace}
	if c.Outcome == NotFound {
		for i := range unsuccessful {
			unsuccessful[i].deletedBy = c.Ended
		}
	}
	return append(states, unsuccessful...)
}

// afterChange returns the possible states after a call that changes the state to changed. possible reports whether the call can succeed.
func (d diskState) afterChange(c Call, possible bool, changed diskState) []diskState {
	switch {
	case c.Outcome == Succeeded && possible:
		return []diskState{changed}
	case c.uncertain() && possible:
		return []diskState{d, changed}
	case c.uncertain(),
		c.Outcome == NotFound && !d.exists,
		c.Outcome == NotAttached && d.vm != c.VM,
		c.Outcome == Rejected && c.Method == "resize_disk" && (c.SizeMiB < d.sizeMiB || c.SizeMiB > d.sizeMiB && !d.hasVolume):
		return []diskState{d}
	}
	return nil
}

// afterQuery returns the state if the outcome of the query can be expected.
func (d diskState) afterQuery(c Call, expected bool) []diskState {
	if c.uncertain() || (c.Outcome == Yes) == expected {
		return []diskState{d}
	}
	return nil
}
