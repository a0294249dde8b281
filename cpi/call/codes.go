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

// Wrap wraps err with this code and its kind. If err already has a code, Wrap keeps that code, which is closer to the cause, but
// replaces the kind. retry is the result of CanRetry.
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

// Codes lists the codes of the CPI in the order of their declaration. Programs on nodes have more: see api.Errorf in cpi/node/api.
var Codes []Code

func newCode(name string, kind ErrorKind) Code {
	code := Code{name, kind}
	Codes = append(Codes, code)
	return code
}

// Codes of invalid requests and settings, which fail before anything is changed. The message names the invalid key and the remedy.
var (
	CodeInvalidProperty       = newCode("invalid-property", CPIError) // cloud_properties, networks, env
	CodeInvalidStemcell       = newCode("invalid-stemcell", CPIError)
	CodeInvalidConfig         = newCode("invalid-config", CPIError) // the CPI's configuration, or a cpi-config
	CodeInvalidRequest        = newCode("invalid-request", CPIError)
	CodeAPIVersionUnsupported = newCode("api-version-unsupported", NotSupported)
	CodeUnknownMethod         = newCode("unknown-method", NotImplemented)
	CodeInternalError         = newCode("internal-error", CPIError)
)

// Codes of the cluster.
var (
	CodeAPIUnreachable      = newCode("api-unreachable", CloudError)
	CodeAPINotKubernetes    = newCode("api-not-kubernetes", CloudError)
	CodeCredentialsMissing  = newCode("credentials-missing", CloudError)
	CodeCredentialsRejected = newCode("credentials-rejected", CloudError)
	CodeRequestDenied       = newCode("request-denied", CloudError)
	CodeWebhookFailed       = newCode("webhook-failed", CloudError)
	CodeClusterError        = newCode("cluster-error", CloudError) // any other error
	CodeNodeUnreachable     = newCode("node-unreachable", CloudError)
	CodeNodeOutOfService    = newCode("node-out-of-service", CloudError)
	CodeHelperDeleted       = newCode("helper-deleted", CloudError)
	CodeHelperInterrupted   = newCode("helper-interrupted", CloudError)
)

// Codes of VMs.
var (
	CodeVMNotFound                = newCode("vm-not-found", VMNotFound)
	CodeVMNotRunning              = newCode("vm-not-running", CloudError)
	CodeVMCreateFailed            = newCode("vm-create-failed", VMCreationFailed) // any other error of create_vm
	CodeVMStartTimeout            = newCode("vm-start-timeout", VMCreationFailed)
	CodeVMStartFailed             = newCode("vm-start-failed", VMCreationFailed)
	CodeVMDeletedEarly            = newCode("vm-deleted-early", VMCreationFailed)
	CodeVMUnschedulable           = newCode("vm-unschedulable", VMCreationFailed)
	CodeVMTooLarge                = newCode("vm-too-large", VMCreationFailed)
	CodeVMWrongPlatform           = newCode("vm-wrong-platform", VMCreationFailed)
	CodeVMRecreateFailed          = newCode("vm-recreate-failed", CloudError)
	CodeVMAddressChanged          = newCode("vm-address-changed", CloudError)
	CodeVMRebootFailed            = newCode("vm-reboot-failed", CloudError)
	CodeVMRebootTimeout           = newCode("vm-reboot-timeout", CloudError)
	CodeVMDeleteTimeout           = newCode("vm-delete-timeout", CloudError)
	CodeNetworkAttachmentNotFound = newCode("network-attachment-not-found", VMCreationFailed)
	CodeServiceExists             = newCode("service-exists", VMCreationFailed)
	CodeAddressNotAssigned        = newCode("address-not-assigned", VMCreationFailed)
	CodeAddressInUse              = newCode("address-in-use", VMCreationFailed)
	CodeInvalidMultusStatus       = newCode("invalid-multus-status", VMCreationFailed)
)

// Codes of disks.
var (
	CodeDiskNotFound            = newCode("disk-not-found", DiskNotFound)
	CodeDiskNotAttached         = newCode("disk-not-attached", DiskNotAttached)
	CodeDiskInUse               = newCode("disk-in-use", CloudError)
	CodeDiskBeingDeleted        = newCode("disk-being-deleted", CloudError) // another client deleted the PVC of a disk in use
	CodeDiskBusy                = newCode("disk-busy", CloudError)          // another call is changing the same disk
	CodeDiskNotManaged          = newCode("disk-not-managed", CloudError)
	CodeDiskOwnerMissing        = newCode("disk-owner-missing", CloudError)
	CodeDiskOwnerInvalid        = newCode("disk-owner-invalid", CloudError)
	CodeDiskWithoutVolume       = newCode("disk-without-volume", CloudError)
	CodeDiskNotProvisioned      = newCode("disk-not-provisioned", CloudError)
	CodeDiskAttachFailed        = newCode("disk-attach-failed", CloudError)
	CodeDiskAttachTimeout       = newCode("disk-attach-timeout", CloudError)
	CodeDiskAttachUnsupported   = newCode("disk-attach-unsupported", NotSupported)
	CodeDiskAttachUnschedulable = newCode("disk-attach-unschedulable", CloudError)
	CodeDiskOnOtherNode         = newCode("disk-on-other-node", CloudError)
	CodeDiskCheckFailed         = newCode("disk-check-failed", CloudError)
	CodeDiskDetachTimeout       = newCode("disk-detach-timeout", CloudError)
	CodeDiskUpdateUnsupported   = newCode("disk-update-unsupported", NotSupported)
	CodeDiskResizeUnsupported   = newCode("disk-resize-unsupported", NotSupported)
	CodeDiskResizeFailed        = newCode("disk-resize-failed", CloudError)
	CodeDiskResizeTimeout       = newCode("disk-resize-timeout", CloudError)
	CodeDiskModifyFailed        = newCode("disk-modify-failed", CloudError)
	CodeDiskModifyTimeout       = newCode("disk-modify-timeout", CloudError)
	CodeDiskFlushFailed         = newCode("disk-flush-failed", CloudError)
	CodeSnapshotUnsupported     = newCode("snapshot-unsupported", NotImplemented)
	CodeSnapshotDeleted         = newCode("snapshot-deleted", CloudError)
	CodeSnapshotTimeout         = newCode("snapshot-timeout", CloudError)
)

// Codes of networks.
var (
	CodeNetworkUnsupported = newCode("network-unsupported", NotSupported)
)

// Codes of stemcells.
var (
	CodeStemcellNotFound     = newCode("stemcell-not-found", CPIError)
	CodeStemcellInUse        = newCode("stemcell-in-use", CloudError)
	CodeImageNotFound        = newCode("image-not-found", CloudError)
	CodeNodeImageUnavailable = newCode("node-image-unavailable", CloudError)
	CodeRegistryMissing      = newCode("registry-missing", NotSupported)
	CodeRegistryDenied       = newCode("registry-denied", CloudError)
	CodeRegistryFailed       = newCode("registry-failed", CloudError)
	CodeRegistryFull         = newCode("registry-full", NoDiskSpace)
	CodeRegistryUndeletable  = newCode("registry-undeletable", CloudError)
	CodeRegistryUntrusted    = newCode("registry-untrusted", CloudError)
)
