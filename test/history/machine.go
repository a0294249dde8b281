package history

// machine is what BOSH can know of a machine.
type machine struct{ exists bool }

// after returns the states that a call can leave of a machine, none when it cannot have had its outcome.
func (m machine) after(c Call) []machine {
	switch c.Method {
	case "create_vm":
		return m.changed(c, true, machine{true})
	case "delete_vm":
		return m.changed(c, true, machine{}) // also of two at once
	case "set_vm_metadata":
		return m.changed(c, m.exists, m)
	case "has_vm":
		if c.uncertain() || (c.Outcome == Yes) == m.exists {
			return []machine{m}
		}
	}
	return nil
}

func (m machine) changed(c Call, possible bool, changed machine) []machine {
	switch {
	case c.Outcome == Well && possible:
		return []machine{changed}
	case c.uncertain() && possible:
		return []machine{m, changed}
	case c.uncertain(), c.Outcome == Absent && !m.exists:
		return []machine{m}
	}
	return nil
}
