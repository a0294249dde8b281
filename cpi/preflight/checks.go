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
	Name    string
	Kind    Kind
	inspect func(context.Context, *clusterState) finding
}

// finding is what a check has found, and what the operator can do about it.
type finding struct {
	verdict        Verdict
	detail, advice string
}

func pass(detail string) finding                 { return finding{OK, detail, ""} }
func warn(detail, advice string) finding         { return finding{Warns, detail, advice} }
func fail(detail, advice string) finding         { return finding{Fails, detail, advice} }
func undetermined(detail, advice string) finding { return finding{Unknown, detail, advice} }

const (
	// checkAPI is looked at before all others: without it there is nothing to look at, but for checkCredentials.
	checkAPI         = "api"
	checkCredentials = "credentials"
)

// Checks are all of them, in the order in which they are reported.
func Checks() []Check {
	checks := []Check{
		{checkAPI, Required, inspectAPI},
		{"api-version", Advised, inspectVersion},
		{checkCredentials, Required, inspectCredentials},
		{"clock", Advised, inspectClock},
		{"rights", Required, inspectRights(callRights)},
		{"rights-snapshots", Advised, inspectRights(snapshotRights)},
		{"rights-events", Advised, inspectEventRights},
		{"rights-networks", Advised, inspectRights(networkRights)},
		{"rights-prefetch", Required, inspectPrefetchRights},
	}
	checks = append(checks, admissionChecks()...)
	return append(checks,
		Check{"quotas", Required, inspectQuotas},
		Check{"limit-ranges", Required, inspectLimitRanges},
		Check{"storage-classes", Advised, inspectStorageClasses},
		Check{"csi-driver", Advised, withDefaultStorageClass(inspectCSIDriver)},
		Check{"snapshot-class", Advised, withDefaultStorageClass(inspectSnapshotClass)},
		Check{"nodes", Required, inspectNodes},
		Check{"pod-slots", Advised, inspectPodSlots},
		Check{"attach-limits", Advised, withDefaultStorageClass(inspectAttachLimits)},
		Check{"priority-class", Required, inspectPriorityClass},
		Check{"addresses", Advised, inspectAddresses},
		Check{"address-pools", Advised, inspectAddressPools},
		Check{"registry", Required, inspectRegistry},
		Check{"attachments", Advised, inspectAttachments},
	)
}
