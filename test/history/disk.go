package history

// disk is what BOSH can know of a disk.
type disk struct {
	exists  bool
	used    bool   // it has been attached, and so has a volume
	holder  string // the VM that has it, or ""
	sizeMiB int
}

// after returns the states that a call can leave of a disk, none when it cannot have had its outcome. What is done already may be
// done once more, as by a call that was made twice at once.
func (d disk) after(c Call) []disk {
	switch c.Method {
	case "attach_disk":
		return d.changed(c, d.exists && (d.holder == "" || d.holder == c.VM), disk{true, true, c.VM, d.sizeMiB})
	case "detach_disk":
		return d.changed(c, d.exists && (d.holder == c.VM || d.holder == ""), disk{true, d.used, "", d.sizeMiB})
	case "delete_disk":
		return d.changed(c, !d.exists || d.holder == "", disk{})
	case "resize_disk":
		return d.changed(c, d.exists && d.holder == "" && d.used && c.SizeMiB >= d.sizeMiB, disk{true, true, "", c.SizeMiB})
	case "snapshot_disk", "set_disk_metadata":
		return d.changed(c, d.exists, d)
	case "has_disk":
		return d.answered(c, d.exists)
	case "get_disks":
		return d.answered(c, d.exists && d.holder == c.VM)
	}
	return nil
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
