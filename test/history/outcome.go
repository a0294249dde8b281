package history

import "strings"

// Outcome is what a director knows of a call when it is over.
type Outcome string

// Outcomes.
const (
	Succeeded   Outcome = "well"
	Yes         Outcome = "yes" // of a question
	No          Outcome = "no"
	NotFound    Outcome = "absent"  // VMNotFound, DiskNotFound
	NotAttached Outcome = "apart"   // DiskNotAttached
	Refused     Outcome = "refused" // NotSupported: nothing was done
	Failed      Outcome = "failed"  // any other error: it may be done or not
	Killed      Outcome = "lost"    // the process was killed: it may be done or not
)

// OutcomeOf is the outcome of a call that was answered with this type of error, "" for none.
func OutcomeOf(kind string) Outcome {
	switch strings.TrimPrefix(kind, "Bosh::Clouds::") {
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

// Call is one that was made, about one machine or one disk.
type Call struct {
	Method  string
	Subject string // the CID of the machine or disk
	VM      string // of a call about a disk, the machine
	SizeMiB int
	Outcome Outcome
	// Started and Ended are moments of one clock.
	Started, Ended int64
}

// uncertain reports whether the call may have had its effect or not.
func (c Call) uncertain() bool { return c.Outcome == Failed || c.Outcome == Killed }
