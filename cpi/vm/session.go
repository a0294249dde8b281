// Package vm serves the methods about VMs: a VM is a Pod.
//
// A machine's Pod is never changed, and never deleted but by delete_vm; how it gets and loses disks all the
// same is said in attach.go and detach.go. disk_strategy.go chooses, at one place, between machines whose disks
// come and go while they run and those that are made again for each disk.
package vm

import (
	"context"
	"time"

	"bosh-kubernetes-cpi/agentsettings"
	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/disk"
	"bosh-kubernetes-cpi/cpi/network"
	"bosh-kubernetes-cpi/stemcell"
)

// Session serves one request about machines.
type Session struct {
	*call.Call
	Options
}

// Options are what the operator, and the request's context, say of machines.
type Options struct {
	Agent    agentsettings.Options
	Network  network.Options
	Disk     disk.Options
	Stemcell stemcell.Options
	// StemcellAPI is the api_version of the VM's stemcell; nil when the director does not tell.
	StemcellAPI *int
	// UnschedulableTimeout is how long a machine may wait for a node that takes it, as one that an autoscaler
	// brings; not at all when 0.
	UnschedulableTimeout time.Duration
	// AttachTimeout is how long a disk may take to be attached.
	AttachTimeout time.Duration
}

// detached is the session with time of its own to clean up.
func (s *Session) detached() (*Session, context.CancelFunc) {
	return s.detachedFor(call.CleanupTimeout)
}

// detachedFor is the session with this much time of its own.
func (s *Session) detachedFor(limit time.Duration) (*Session, context.CancelFunc) {
	detached, cancel := s.Call.Detached(limit)
	return &Session{Call: detached, Options: s.Options}, cancel
}

// withTimeout is the session with no more than this much of its time.
func (s *Session) withTimeout(limit time.Duration) (*Session, context.CancelFunc) {
	bounded, cancel := s.Call.WithTimeout(limit)
	return &Session{Call: bounded, Options: s.Options}, cancel
}

// diskSession is the part of the session that is about disks.
func (s *Session) diskSession() *disk.Session {
	return &disk.Session{Call: s.Call, StartTimeout: s.AttachTimeout}
}
