package history

import "math"

// disk is what BOSH can know of a disk.
type disk struct {
	exists  bool
	used    bool   // it has been attached, and so has a volume
	holder  string // the VM that has it, or ""
	sizeMiB int
	trace   trace // of an attach_disk that came to nothing: get_disks tells of it, and detach_disk of that VM takes it away
	leaving trace // of a detach_disk, which others wait for, also when the disk is deleted meanwhile
	doomed  int64 // when it is deleted at the latest, since an attach_disk has answered so; 0 when it may stay
}

// trace is what there is to see of a call until it is over, or for good where its process was killed.
type trace struct {
	vm    string // or "", when there is none
	until int64  // the call's end
	gone  int64  // when it has gone by itself
}

// of is the trace of a call that does not end later than that.
func of(c Call) trace {
	switch {
	case c.Outcome == Lost:
		return trace{c.VM, c.Ended + lingers, math.MaxInt64}
	case c.uncertain():
		return trace{c.VM, c.Ended + lingers, c.Ended + lingers}
	}
	return trace{c.VM, c.Ended, c.Ended}
}

// after returns the states that a call can leave of a disk, none when it cannot have had its outcome.
func (d disk) after(c Call) (all []disk) {
	for _, met := range d.met(c) {
		all = append(all, met.then(c)...)
	}
	return all
}

// met are the states that the call may find: a trace goes by itself, at the latest when the call is over that left it. None when the
// disk should not be there any more.
func (d disk) met(c Call) []disk {
	untraced := d
	untraced.trace = trace{}
	switch {
	case d.exists && d.doomed != 0 && c.Started >= d.doomed:
		return nil
	case d.trace.vm == "" || c.Ended < d.trace.gone:
		return []disk{d}
	case c.Started < d.trace.gone:
		return []disk{d, untraced}
	}
	return []disk{untraced}
}

// then returns the states that a call can leave of what it found. What is done already may be done once more, as by a call that was
// made twice at once.
func (d disk) then(c Call) []disk {
	switch c.Method {
	case "attach_disk":
		return d.attached(c)
	case "detach_disk":
		free := d
		free.holder, free.trace, free.leaving = "", trace{}, of(c)
		repeated := d.exists && d.holder == "" || d.leaving.vm == c.VM && c.Started < d.leaving.until
		return d.changed(c, repeated || d.heldBy(c.VM), free)
	case "delete_disk":
		return d.changed(c, !d.exists || d.deletable(c), disk{trace: d.trace, leaving: d.leaving})
	case "resize_disk":
		grown := d
		grown.used, grown.sizeMiB = true, c.SizeMiB
		return d.changed(c, d.exists && d.holder == "" && d.used && c.SizeMiB >= d.sizeMiB, grown)
	case "snapshot_disk", "set_disk_metadata":
		return d.changed(c, d.exists, d)
	case "has_disk":
		return d.answered(c, d.exists)
	case "get_disks":
		return d.answered(c, d.heldBy(c.VM))
	}
	return nil
}

// heldBy reports whether the VM has the disk, or the trace of an attempt to give it to it.
func (d disk) heldBy(vm string) bool { return d.holder == vm || d.trace.vm == vm }

// deletable reports whether the call can delete a disk that exists. No VM has it, and none was being given it before the call began.
func (d disk) deletable(c Call) bool {
	return d.holder == "" && (d.trace.vm == "" || c.Started < d.trace.until)
}

// attached are the states after attach_disk. One that has come to nothing may have made the volume all the same, or leave a trace;
// also one that the disk was deleted under.
func (d disk) attached(c Call) []disk {
	possible := d.exists && (d.holder == "" || d.holder == c.VM) && (d.trace.vm == "" || d.trace.vm == c.VM)
	states := d.changed(c, possible, disk{exists: true, used: true, holder: c.VM, sizeMiB: d.sizeMiB})
	if !c.uncertain() && c.Outcome != Absent || d.holder != "" || (d.trace.vm != "" && d.trace.vm != c.VM) {
		return states
	}
	volume, traced := d, d
	volume.used = d.exists
	traced.trace = trace{c.VM, max(c.Ended, d.trace.until), max(c.Ended, d.trace.gone)}
	if c.Outcome == Lost {
		traced.trace.gone = math.MaxInt64
	}
	both := traced
	both.used = d.exists
	all := []disk{volume, traced, both}
	if c.Outcome == Absent {
		for i := range all {
			all[i].doomed = c.Ended
		}
	}
	return append(states, all...)
}

// changed are the states after a call that changes a disk, which it can when possible says so.
func (d disk) changed(c Call, possible bool, changed disk) []disk {
	switch {
	case c.Outcome == Well && possible:
		return []disk{changed}
	case c.uncertain() && possible:
		return []disk{d, changed}
	case c.uncertain(),
		c.Outcome == Absent && !d.exists,
		c.Outcome == Apart && d.holder != c.VM,
		c.Outcome == Refused && c.Method == "resize_disk" && (c.SizeMiB < d.sizeMiB || !d.used):
		return []disk{d}
	}
	return nil
}

func (d disk) answered(c Call, truth bool) []disk {
	if c.uncertain() || (c.Outcome == Yes) == truth {
		return []disk{d}
	}
	return nil
}
