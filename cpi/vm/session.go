// Package vm implements the CPI methods about VMs. A VM is a Pod.
//
// By default, only delete_vm deletes the Pod, and disks are attached and detached while it runs: see attach_disk.go and detach_disk.go.
// With disk_strategy: recreate, the Pod is recreated for each disk. diskStrategy is the interface to both.
package vm

import (
	"context"
	"time"

	"bosh-kubernetes-cpi/agentsettings"
	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/disk"
	"bosh-kubernetes-cpi/cpi/manifest"
	"bosh-kubernetes-cpi/cpi/network"
	"bosh-kubernetes-cpi/kube"
	"bosh-kubernetes-cpi/stemcell"
)

// Session serves one request about VMs.
type Session struct {
	*call.Call
	Options
}

// Options are the settings for VMs in the CPI's configuration and in the context of the request.
type Options struct {
	Agent    agentsettings.Options
	Network  network.Options
	Disk     disk.Options
	Stemcell stemcell.Options
	// StemcellAPI is the api_version of the VM's stemcell, or nil if the director does not send it.
	StemcellAPI *int
	// UnschedulableTimeout is how long a VM may stay unschedulable, for example until an autoscaler adds a node. With 0, an
	// unschedulable VM fails at once.
	UnschedulableTimeout time.Duration
	// AttachTimeout limits the time to attach a disk.
	AttachTimeout time.Duration
}

// detached returns a copy of the session for cleanup, which outlives the call and ends after limit.
func (s *Session) detached(limit time.Duration) (*Session, context.CancelFunc) {
	detached, cancel := s.Call.Detached(limit)
	return &Session{Call: detached, Options: s.Options}, cancel
}

// diskSession returns a session of package disk for the same call.
func (s *Session) diskSession() *disk.Session {
	return &disk.Session{Call: s.Call}
}

// getWithAttachments returns the VM Pod and the attachment Pods of its disks. It recreates missing Pods of a VM with disk_strategy:
// recreate.
func (s *Session) getWithAttachments(vmCID string) (manifest.VMPod, []manifest.AttachmentPod, error) {
	for wait := kube.NewConflictBackoff(); ; wait(s.Ctx) {
		found, _, err := s.ListVMPods(vmCID)
		if err != nil {
			return manifest.VMPod{}, nil, err
		}
		attachments := manifest.AttachmentPods(found.Items)
		for _, vmPod := range manifest.VMPods(found.Items) {
			if !vmPod.HasRecreateStrategy() || !mustRecreate(vmPod) && len(unattachedDisks(vmPod, attachments)) == 0 {
				return vmPod, attachments, nil
			}
		}
		if err := s.recreateMissingPod(vmCID); err != nil {
			return manifest.VMPod{}, nil, err
		}
	}
}
