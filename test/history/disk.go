package history

import "math"

// diskState is what BOSH can know of a disk.
type diskState struct {
	exists      bool
	hasVolume   bool   // it has been attached, and so has a volume
	vm          string // the VM that has it, or ""
	sizeMiB     int
	trace       trace // of an attach_disk that came to nothing: get_disks tells of it, and detach_disk of that VM takes it away
	detachTrace trace // of a detach_disk, which others wait for, also when the disk is deleted meanwhile
	deletedBy   int64 // when it is deleted at the latest, since an attach_disk has answered so; 0 when it may stay
}

// trace is what there is to see of a call until it is over, or for good where its process was killed.
type trace struct {
	vm      string // or "", when there is none
	callEnd int64  // the call's end
	expires int64  // when it has gone by itself
}

// traceOf is the trace of a call that does not end later than that.
func traceOf(c Call) trace {
	switch {
	case c.Outcome == Killed:
		return trace{c.VM, c.Ended + maxEffectDelay, math.MaxInt64}
	case c.uncertain():
		return trace{c.VM, c.Ended + maxEffectDelay, c.Ended + maxEffectDelay}
	}
	return trace{c.VM, c.Ended, c.Ended}
}

// nextStates returns the states that a call can leave of a disk, none when it cannot have had its outcome.
func (d diskState) nextStates(c Call) (all []diskState) {
	for _, met := range d.statesAtCall(c) {
		all = append(all, met.apply(c)...)
	}
	return all
}

// statesAtCall are the states that the call may find: a trace goes by itself, at the latest when the call is over that left it. None when the
// disk should not be there any more.
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

// apply returns the states that a call can leave of what it found. What is done already may be done once more, as by a call that was
// made twice at once.
func (d diskState) apply(c Call) []diskState {
	switch c.Method {
	case "attach_disk":
		return d.afterAttach(c)
	case "detach_disk":
		detached := d
		detached.vm, detached.trace, detached.detachTrace = "", trace{}, traceOf(c)
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

// attachedTo reports whether the VM has the disk, or the trace of an attempt to give it to it.
func (d diskState) attachedTo(vm string) bool { return d.vm == vm || d.trace.vm == vm }

// canDelete reports whether the call can delete a disk that exists. No VM has it, and none was being given it before the call began.
func (d diskState) canDelete(c Call) bool {
	return d.vm == "" && (d.trace.vm == "" || c.Started < d.trace.callEnd)
}

// afterAttach are the states after attach_disk. One that has come to nothing may have made the volume all the same, or leave a trace;
// also one that the disk was deleted under.
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

// afterChange are the states after a call that changes a disk, which it can when possible says so.
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

func (d diskState) afterQuery(c Call, truth bool) []diskState {
	if c.uncertain() || (c.Outcome == Yes) == truth {
		return []diskState{d}
	}
	return nil
}
