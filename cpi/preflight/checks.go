package preflight

import "context"

// Kind says what it means for a check to fail.
type Kind string

// Kinds of checks.
const (
	Required Kind = "required" // calls of the CPI fail
	Advised  Kind = "advised"  // something is left out, or goes wrong later
)

// Verdict is what has come of a check.
type Verdict string

// Verdicts.
const (
	OK      Verdict = "ok"
	Warns   Verdict = "warns"   // it holds, and there is something to know
	Fails   Verdict = "fails"   // it does not hold
	Unknown Verdict = "unknown" // it could not be looked at
)

// Check is one thing to look at.
type Check struct {
	Name string
	Kind Kind
	look func(context.Context, *subject) finding
}

// finding is what a check has found, and what the operator can do about it.
type finding struct {
	verdict        Verdict
	detail, advice string
}

func ok(detail string) finding              { return finding{OK, detail, ""} }
func warns(detail, advice string) finding   { return finding{Warns, detail, advice} }
func fails(detail, advice string) finding   { return finding{Fails, detail, advice} }
func unknown(detail, advice string) finding { return finding{Unknown, detail, advice} }

const (
	// checkAPI is looked at before all others: without it there is nothing to look at, but for checkCredentials.
	checkAPI         = "api"
	checkCredentials = "credentials"
)

// Checks are all of them, in the order in which they are reported.
func Checks() []Check {
	checks := []Check{
		{checkAPI, Required, lookAtAPI},
		{"api-version", Advised, lookAtVersion},
		{checkCredentials, Required, lookAtCredentials},
		{"clock", Advised, lookAtClock},
		{"rights", Required, lookAtRights(calls)},
		{"rights-snapshots", Advised, lookAtRights(snapshots)},
		{"rights-events", Advised, lookAtEvents},
		{"rights-networks", Advised, lookAtRights(networks)},
		{"rights-prefetch", Required, lookAtPrefetch},
	}
	checks = append(checks, creations()...)
	return append(checks,
		Check{"quotas", Required, lookAtQuotas},
		Check{"limit-ranges", Required, lookAtLimitRanges},
		Check{"storage-classes", Advised, lookAtClasses},
		Check{"csi-driver", Advised, ofDefaultClass(lookAtDriver)},
		Check{"snapshot-class", Advised, ofDefaultClass(lookAtSnapshotClass)},
		Check{"nodes", Required, lookAtNodes},
		Check{"pod-slots", Advised, lookAtSlots},
		Check{"attach-limits", Advised, ofDefaultClass(lookAtAttachLimits)},
		Check{"priority-class", Required, lookAtPriority},
		Check{"addresses", Advised, lookAtAddresses},
		Check{"address-pools", Advised, lookAtPools},
		Check{"registry", Required, lookAtRegistry},
		Check{"attachments", Advised, lookAtAttachments},
	)
}
