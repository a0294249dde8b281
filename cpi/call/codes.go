package call

import (
	"errors"
	"fmt"
)

// Code is the stable name of an error, shown at the end of its message. Messages may be reworded, but codes do not change, because
// docs/reference/errors.md is indexed by them.
type Code struct {
	Name string // for example "disk-in-use"
	Kind ErrorKind
}

// Errorf returns an error with this code.
func (c Code) Errorf(format string, args ...any) *Error {
	return c.Wrap(fmt.Errorf(format, args...), false)
}

// Wrap returns the error with the kind of this code. If err already has a code, Wrap keeps it, because it is closer to the cause;
// the kind of err is replaced. retry is the result of CanRetry.
func (c Code) Wrap(err error, retry bool) *Error {
	wrapped := &Error{kind: c.Kind, code: c.Name, retry: retry, err: err}
	if cause := (*Error)(nil); errors.As(err, &cause) {
		wrapped.code = cause.code
	}
	return wrapped
}

// Is reports whether the error has this code.
func (c Code) Is(err error) bool {
	var typed *Error
	return errors.As(err, &typed) && typed.code == c.Name
}

// Codes lists all codes in the order of their declaration.
var Codes []Code

func newCode(name string, kind ErrorKind) Code {
	code := Code{name, kind}
	Codes = append(Codes, code)
	return code
}

// Codes of invalid requests and settings, which fail before anything is changed. The message names the invalid key and the remedy.
var (
	InvalidProperty = newCode("invalid-property", CPIError) // cloud_properties, networks, env
	InvalidStemcell = newCode("invalid-stemcell", CPIError)
	InvalidConfig   = newCode("invalid-config", CPIError) // the CPI's configuration, or a cpi-config
	InvalidRequest  = newCode("invalid-request", CPIError)
	UnknownMethod   = newCode("unknown-method", NotImplemented)
	InternalError   = newCode("internal-error", CPIError)
)

// Codes of the cluster.
var (
	APIUnreachable      = newCode("api-unreachable", CloudError)
	APINotKubernetes    = newCode("api-not-kubernetes", CloudError)
	CredentialsMissing  = newCode("credentials-missing", CloudError)
	CredentialsRejected = newCode("credentials-rejected", CloudError)
	RequestDenied       = newCode("request-denied", CloudError)
	WebhookFailed       = newCode("webhook-failed", CloudError)
	ClusterError        = newCode("cluster-error", CloudError) // any error without a code of its own
	NodeUnreachable     = newCode("node-unreachable", CloudError)
	VMNodeOutOfService  = newCode("node-out-of-service", CloudError)
	HelperDeleted       = newCode("helper-deleted", CloudError)
	HelperInterrupted   = newCode("helper-interrupted", CloudError)
)

// Codes of VMs.
var (
	VMMissing                = newCode("vm-not-found", VMNotFound)
	VMNotRunning             = newCode("vm-not-running", CloudError)
	VMCreateFailed           = newCode("vm-create-failed", VMCreationFailed) // any create_vm error without a code of its own
	VMStartTimeout           = newCode("vm-start-timeout", VMCreationFailed)
	VMStartFailed            = newCode("vm-start-failed", VMCreationFailed)
	VMDeletedEarly           = newCode("vm-deleted-early", VMCreationFailed)
	VMUnschedulable          = newCode("vm-unschedulable", VMCreationFailed)
	VMTooLarge               = newCode("vm-too-large", VMCreationFailed)
	VMWrongPlatform          = newCode("vm-wrong-platform", VMCreationFailed)
	VMRecreateFailed         = newCode("vm-recreate-failed", CloudError)
	VMAddressChanged         = newCode("vm-address-changed", CloudError)
	VMRebootFailed           = newCode("vm-reboot-failed", CloudError)
	VMRebootTimeout          = newCode("vm-reboot-timeout", CloudError)
	VMDeleteTimeout          = newCode("vm-delete-timeout", CloudError)
	NetworkAttachmentMissing = newCode("network-attachment-not-found", VMCreationFailed)
	ServiceExists            = newCode("service-exists", VMCreationFailed)
	AddressNotAssigned       = newCode("address-not-assigned", VMCreationFailed)
	InvalidMultusStatus      = newCode("invalid-multus-status", VMCreationFailed)
)

// Codes of disks.
var (
	DiskMissing             = newCode("disk-not-found", DiskNotFound)
	DiskDetached            = newCode("disk-not-attached", DiskNotAttached)
	DiskInUse               = newCode("disk-in-use", CloudError)
	DiskBusy                = newCode("disk-busy", CloudError) // another call is changing the same disk
	DiskNotManaged          = newCode("disk-not-managed", CloudError)
	DiskOwnerMissing        = newCode("disk-owner-missing", CloudError)
	DiskOwnerInvalid        = newCode("disk-owner-invalid", CloudError)
	DiskWithoutVolume       = newCode("disk-without-volume", CloudError)
	DiskNotProvisioned      = newCode("disk-not-provisioned", CloudError)
	DiskVolumeLost          = newCode("disk-volume-lost", CloudError)
	DiskAttachFailed        = newCode("disk-attach-failed", CloudError)
	DiskAttachTimeout       = newCode("disk-attach-timeout", CloudError)
	DiskAttachUnsupported   = newCode("disk-attach-unsupported", NotSupported)
	DiskAttachUnschedulable = newCode("disk-attach-unschedulable", CloudError)
	DiskOnOtherNode         = newCode("disk-on-other-node", CloudError)
	DiskDetachTimeout       = newCode("disk-detach-timeout", CloudError)
	DiskResizeUnsupported   = newCode("disk-resize-unsupported", NotSupported)
	DiskResizeFailed        = newCode("disk-resize-failed", CloudError)
	DiskResizeTimeout       = newCode("disk-resize-timeout", CloudError)
	DiskCopyUnsupported     = newCode("disk-copy-unsupported", NotSupported)
	DiskCopyIncomplete      = newCode("disk-copy-incomplete", CloudError)
	DiskCopyFailed          = newCode("disk-copy-failed", CloudError)
	DiskCopyFull            = newCode("disk-copy-full", NoDiskSpace)
	DiskCopyTimeout         = newCode("disk-copy-timeout", CloudError)
	DiskReplaced            = newCode("disk-replaced", CloudError)
	DiskFlushFailed         = newCode("disk-flush-failed", CloudError)
	PVCExists               = newCode("pvc-exists", CloudError)
	SnapshotUnsupported     = newCode("snapshot-unsupported", NotImplemented)
	SnapshotDeleted         = newCode("snapshot-deleted", CloudError)
	SnapshotTimeout         = newCode("snapshot-timeout", CloudError)
)

// Codes of networks.
var (
	NetworkMissing            = newCode("network-not-found", NetworkNotFound)
	NetworkUnsupported        = newCode("network-unsupported", NotSupported)
	ManagedNetworkUnsupported = newCode("managed-network-unsupported", NotSupported)
)

// Codes of stemcells.
var (
	StemcellMissing     = newCode("stemcell-not-found", StemcellNotFound)
	StemcellInUse       = newCode("stemcell-in-use", CloudError)
	ImageMissing        = newCode("image-not-found", CloudError)
	RegistryMissing     = newCode("registry-missing", NotSupported)
	RegistryDenied      = newCode("registry-denied", CloudError)
	RegistryFailed      = newCode("registry-failed", CloudError)
	RegistryFull        = newCode("registry-full", NoDiskSpace)
	RegistryUndeletable = newCode("registry-undeletable", CloudError)
	RegistryUntrusted   = newCode("registry-untrusted", CloudError)
	PrefetchDenied      = newCode("prefetch-denied", CloudError)
	DaemonSetExists     = newCode("daemonset-exists", CloudError)
)
