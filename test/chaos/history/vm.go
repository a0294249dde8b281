package history

// vmState is the state of a VM as BOSH can observe it.
type vmState struct{ exists bool }

// nextStates returns the possible states after the call, or none if its outcome is impossible in this state.
func (s vmState) nextStates(c Call) []vmState {
	switch c.Method {
	case "create_vm":
		return s.afterChange(c, true, vmState{true})
	case "delete_vm":
		return s.afterChange(c, true, vmState{}) // even if a concurrent call deleted the VM
	case "set_vm_metadata":
		return s.afterChange(c, s.exists, s)
	case "has_vm":
		if c.uncertain() || (c.Outcome == Yes) == s.exists {
			return []vmState{s}
		}
	}
	return nil
}

// afterChange returns the possible states after a call that changes the state to changed. possible reports whether the call can succeed.
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
