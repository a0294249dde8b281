package history

import "math"

// diskState is the state of a disk as BOSH can observe it.
type diskState struct {
	exists      bool
	hasVolume   bool   // a volume has been provisioned, because the disk was attached
	vm          string // the VM to which the disk is attached, or ""
	sizeMiB     int
	trace       trace // of an attach_disk call that did not succeed: get_disks returns the disk, and detach_disk for that VM removes the trace
	detachTrace trace // of a detach_disk call, for which other detach_disk calls wait even if the disk is deleted meanwhile
	deletedBy   int64 // latest time of the deletion, since an attach_disk call has returned DiskNotFound; 0 if there is none
}

// trace is the visible part of a call until it ends. The trace of a killed call does not expire.
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

// nextStates returns the possible states after the call. There are none if its outcome is not possible in this state.
func (d diskState) nextStates(c Call) (all []diskState) {
	for _, current := range d.statesAtCall(c) {
		all = append(all, current.apply(c)...)
	}
	return all
}

// statesAtCall returns the states that the call may find, since traces disappear by themselves. There are none if the disk must
// have been deleted by then.
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

// apply returns the possible states after the call. detach_disk and delete_disk may also succeed if a concurrent call has already
// done the same.
func (d diskState) apply(c Call) []diskState {
	switch c.Method {
	case "attach_disk":
		return d.afterAttach(c)
	case "detach_disk":
		detached := d
		detached.vm, detached.trace, detached.detachTrace = "", trace{}, newTrace(c)
		repeated := d.exists && d.vm == "" || d.detachTrace.vm == c.VM && c.Started < d.detachTrace.callEnd
		return d.afterChange(c, repeated || d.attachedTo(c.VM), detached)
	case "delete_disk":
		return d.afterChange(c, !d.exists || d.canDelete(c), diskState{trace: d.trace, detachTrace: d.detachTrace})
	case "resize_disk":
		grown := d
		grown.hasVolume, grown.sizeMiB = true, c.SizeMiB
		return d.afterChange(c, d.exists && d.vm == "" && d.hasVolume && c.SizeMiB >= d.sizeMiB, grown)
	case "snapshot_disk", "set_disk_metadata":
		return d.afterChange(c, d.exists, d)
	case "has_disk":
		return d.afterQuery(c, d.exists)
	case "get_disks":
		return d.afterQuery(c, d.attachedTo(c.VM))
	}
	return nil
}

// attachedTo reports whether the disk is attached to the VM, or there is a trace of an attempt to attach it.
func (d diskState) attachedTo(vm string) bool { return d.vm == vm || d.trace.vm == vm }

// canDelete reports whether the call can delete the disk: it is not attached, and no attach_disk call has left a trace before the call
// started.
func (d diskState) canDelete(c Call) bool {
	return d.vm == "" && (d.trace.vm == "" || c.Started < d.trace.callEnd)
}

// afterAttach returns the possible states after attach_disk. A call that did not succeed may have provisioned the volume, or left a
// trace, even if the disk was deleted during the call.
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
	all := []diskState{withVolume, withTrace, volumeAndTrace}
	if c.Outcome == NotFound {
		for i := range all {
			all[i].deletedBy = c.Ended
		}
	}
	return append(states, all...)
}

// afterChange returns the possible states after a call that changes the state to changed if possible is true.
func (d diskState) afterChange(c Call, possible bool, changed diskState) []diskState {
	switch {
	case c.Outcome == Succeeded && possible:
		return []diskState{changed}
	case c.uncertain() && possible:
		return []diskState{d, changed}
	case c.uncertain(),
		c.Outcome == NotFound && !d.exists,
		c.Outcome == NotAttached && d.vm != c.VM,
		c.Outcome == Refused && c.Method == "resize_disk" && (c.SizeMiB < d.sizeMiB || !d.hasVolume):
		return []diskState{d}
	}
	return nil
}

// afterQuery returns the state if the call returned this answer.
func (d diskState) afterQuery(c Call, answer bool) []diskState {
	if c.uncertain() || (c.Outcome == Yes) == answer {
		return []diskState{d}
	}
	return nil
}
