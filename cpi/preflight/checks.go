package preflight

import "context"

// Kind is the consequence of a failed check.
type Kind string

// Kinds of checks.
const (
	Required Kind = "required" // calls of the CPI fail
	Advised  Kind = "advised"  // an optional feature does not work, or problems are likely later
)

// Verdict is the result of a check.
type Verdict string

// Verdicts.
const (
	OK      Verdict = "ok"
	Warns   Verdict = "warns"   // passed, with a remedy
	Fails   Verdict = "fails"   // failed
	Unknown Verdict = "unknown" // the check could not run
)

// Check examines one requirement of the CPI.
type Check struct {
	Name    string
	Kind    Kind
	inspect func(context.Context, *clusterState) finding
}

// finding is the outcome of a check, and the remedy.
type finding struct {
	verdict        Verdict
	detail, remedy string
}

func pass(detail string) finding                 { return finding{OK, detail, ""} }
func warn(detail, remedy string) finding         { return finding{Warns, detail, remedy} }
func fail(detail, remedy string) finding         { return finding{Fails, detail, remedy} }
func undetermined(detail, remedy string) finding { return finding{Unknown, detail, remedy} }

const (
	// checkAPI runs first. If it fails, only checkCredentials runs as well.
	checkAPI         = "api"
	checkCredentials = "credentials"
)

// Checks returns all checks, in the order of the report.
func Checks() []Check {
	checks := []Check{
		{checkAPI, Required, inspectAPI},
		{"api-version", Advised, inspectVersion},
		{checkCredentials, Required, inspectCredentials},
		{"clock", Advised, inspectClock},
		{"permissions", Required, inspectPermissions(callPermissions)},
		{"permissions-snapshots", Advised, inspectPermissions(snapshotPermissions)},
		{"permissions-events", Advised, inspectEventPermissions},
	}
	checks = append(checks, admissionChecks()...)
	return append(checks,
		Check{"quotas", Required, inspectQuotas},
		Check{"limit-ranges", Required, inspectLimitRanges},
		Check{"storage-classes", Advised, inspectStorageClasses},
		Check{"csi-driver", Advised, withDefaultStorageClass(inspectCSIDriver)},
		Check{"snapshot-class", Advised, withDefaultStorageClass(inspectSnapshotClass)},
		Check{"nodes", Required, inspectNodes},
		Check{"node-versions", Required, inspectNodeVersions},
		Check{"pod-slots", Advised, inspectPodSlots},
		Check{"attach-limits", Advised, withDefaultStorageClass(inspectAttachLimits)},
		Check{"addresses", Advised, inspectAddresses},
		Check{"address-pools", Advised, inspectAddressPools},
		Check{"registry", Required, inspectRegistry},
		Check{"attachments", Advised, inspectAttachments},
	)
}
