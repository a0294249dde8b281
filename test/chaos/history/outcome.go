package history

import "strings"

// Outcome is the result of a call as the director sees it.
type Outcome string

// Possible outcomes.
const (
	Succeeded   Outcome = "succeeded"
	Yes         Outcome = "yes" // of a query
	No          Outcome = "no"
	NotFound    Outcome = "not found"    // VMNotFound or DiskNotFound
	NotAttached Outcome = "not attached" // DiskNotAttached
	Rejected    Outcome = "rejected"     // NotSupported: the call had no effect
	Failed      Outcome = "failed"       // any other error: the call may or may not have taken effect
	Killed      Outcome = "killed"       // the process was killed: the call may or may not have taken effect
)

// OutcomeOf returns the outcome of a call that returned an error of this type, or no error if it is "".
func OutcomeOf(errorType string) Outcome {
	switch strings.TrimPrefix(errorType, "Bosh::Clouds::") {
	case "":
		return Succeeded
	case "VMNotFound", "DiskNotFound":
		return NotFound
	case "DiskNotAttached":
		return NotAttached
	case "NotSupported":
		return Rejected
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

// uncertain reports whether the call may or may not have taken effect.
func (c Call) uncertain() bool { return c.Outcome == Failed || c.Outcome == Killed }
