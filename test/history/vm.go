package history

// vmState is what BOSH can know of a machine.
type vmState struct{ exists bool }

// nextStates returns the states that a call can leave of a machine, none when it cannot have had its outcome.
func (s vmState) nextStates(c Call) []vmState {
	switch c.Method {
	case "create_vm":
		return s.afterChange(c, true, vmState{true})
	case "delete_vm":
		return s.afterChange(c, true, vmState{}) // also of two at once
	case "set_vm_metadata":
		return s.afterChange(c, s.exists, s)
	case "has_vm":
		if c.uncertain() || (c.Outcome == Yes) == s.exists {
			return []vmState{s}
		}
	}
	return nil
}

func (s vmState) afterChange(c Call, possible bool, changed vmState) []vmState {
	switch {
	case c.Outcome == Succeeded && possible:
		return []vmState{changed}
	case c.uncertain() && possible:
		return []vmState{s, changed}
	case c.uncertain(), c.Outcome == NotFound && !s.exists:
		return []vmState{s}
	}
	return nil
}
