package history

import "strings"

// Outcome is the result of a call as the director sees it.
type Outcome string

// Outcomes.
const (
	Succeeded   Outcome = "succeeded"
	Yes         Outcome = "yes" // of a query
	No          Outcome = "no"
	NotFound    Outcome = "not found"    // VMNotFound or DiskNotFound
	NotAttached Outcome = "not attached" // DiskNotAttached
	Refused     Outcome = "refused"      // NotSupported: the call had no effect
	Failed      Outcome = "failed"       // any other error: the call may or may not have had its effect
	Killed      Outcome = "killed"       // the process was killed: the call may or may not have had its effect
)

// OutcomeOf returns the outcome of a call with an error of this type, or without an error for "".
func OutcomeOf(errorType string) Outcome {
	switch strings.TrimPrefix(errorType, "Bosh::Clouds::") {
	case "":
		return Succeeded
	case "VMNotFound", "DiskNotFound":
		return NotFound
	case "DiskNotAttached":
		return NotAttached
	case "NotSupported":
		return Refused
	}
	return Failed
}

// Call is a call for one VM or disk.
type Call struct {
	Method  string
	Subject string // CID of the VM or disk
	VM      string // CID of the VM, if the subject is a disk
	SizeMiB int
	Outcome Outcome
	// Started and Ended are nanoseconds since a common point in time.
	Started, Ended int64
}

// uncertain reports whether it is unknown if the call had its effect.
func (c Call) uncertain() bool { return c.Outcome == Failed || c.Outcome == Killed }
