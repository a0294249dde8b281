package cpi

import (
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"bosh-kubernetes-cpi/cpi/disk"
	"bosh-kubernetes-cpi/cpi/network"
	"bosh-kubernetes-cpi/cpi/stemcells"
	"bosh-kubernetes-cpi/cpi/vm"
	"bosh-kubernetes-cpi/stemcell"
)

// method is all that this CPI knows about a method of the CPI protocol. Tests compare the timeouts and Event reasons with the
// documentation.
type method struct {
	// needsCluster reports whether the method needs a client for the cluster. Other methods work without an API server.
	needsCluster bool
	// timeout limits the calls of the method. Without it, kubernetes.timeouts.other does.
	timeout methodTimeout
	// event has the reasons of the Events that calls create. Methods that only read or only change metadata create no Events. Neither do
	// methods for stemcells, which are not in the cluster.
	event eventReasons
	// handler returns the function that serves the method in this session; its parameters are the method's arguments, see
	// https://bosh.io/docs/cpi-api-v2/.
	handler func(*requestSession) any
}

// methods are the methods that this CPI implements.
var methods = map[string]method{
	"info":                          {handler: func(*requestSession) any { return getInfo }},
	"calculate_vm_cloud_properties": {handler: func(*requestSession) any { return vm.Calculate }},

	"create_stemcell": {timeout: methodTimeout{30 * time.Minute, func(t *Timeouts) *metav1.Duration { return &t.CreateStemcell }},
		handler: func(s *requestSession) any { return s.stemcellSession().Create }},
	"delete_stemcell": {handler: func(s *requestSession) any { return s.stemcellSession().Delete }},

	"create_vm": {needsCluster: true, event: eventReasons{"Created", "Create"},
		timeout: methodTimeout{15 * time.Minute, func(t *Timeouts) *metav1.Duration { return &t.CreateVM }},
		handler: (*requestSession).createVM},
	"delete_vm": {needsCluster: true, event: eventReasons{"Deleted", "Delete"},
		timeout: methodTimeout{10 * time.Minute, func(t *Timeouts) *metav1.Duration { return &t.DeleteVM }},
		handler: func(s *requestSession) any { return s.vmSession().Delete }},
	"has_vm": {needsCluster: true, handler: func(s *requestSession) any { return s.vmSession().Has }},
	"reboot_vm": {needsCluster: true, event: eventReasons{"Rebooted", "Reboot"},
		handler: func(s *requestSession) any { return s.vmSession().Reboot }},
	"set_vm_metadata": {needsCluster: true, handler: func(s *requestSession) any { return s.vmSession().SetMetadata }},
	"attach_disk": {needsCluster: true, event: eventReasons{"DiskAttached", "Attach"},
		timeout: methodTimeout{10 * time.Minute, func(t *Timeouts) *metav1.Duration { return &t.AttachDisk }},
		handler: func(s *requestSession) any { return s.vmSession().Attach }},
	"detach_disk": {needsCluster: true, event: eventReasons{"DiskDetached", "Detach"},
		timeout: methodTimeout{5 * time.Minute, func(t *Timeouts) *metav1.Duration { return &t.DetachDisk }},
		handler: func(s *requestSession) any { return s.vmSession().Detach }},
	"get_disks": {needsCluster: true, handler: func(s *requestSession) any { return s.vmSession().GetDisks }},

	"create_disk": {needsCluster: true, event: eventReasons{"Created", "Create"},
		handler: func(s *requestSession) any { return s.diskSession().Create }},
	"delete_disk": {needsCluster: true, event: eventReasons{"Deleted", "Delete"},
		handler: func(s *requestSession) any { return s.diskSession().Delete }},
	"has_disk":          {needsCluster: true, handler: func(s *requestSession) any { return s.diskSession().Has }},
	"set_disk_metadata": {needsCluster: true, handler: func(s *requestSession) any { return s.diskSession().SetMetadata }},
	"resize_disk": {needsCluster: true, event: eventReasons{"DiskResized", "Resize"},
		handler: func(s *requestSession) any { return s.diskSession().Resize }},
	"update_disk": {needsCluster: true, event: eventReasons{"DiskUpdated", "Update"},
		handler: func(s *requestSession) any { return s.diskSession().Update }},
	"snapshot_disk": {needsCluster: true, event: eventReasons{"SnapshotTaken", "Snapshot"},
		handler: func(s *requestSession) any { return s.diskSession().Snapshot }},
	"delete_snapshot": {needsCluster: true, event: eventReasons{"Deleted", "Delete"},
		handler: func(s *requestSession) any { return s.diskSession().DeleteSnapshot }},
}

func (s *requestSession) vmSession() *vm.Session {
	return s.config.VMSession(s.Call, s.stemcellAPI)
}

func (s *requestSession) stemcellSession() *stemcells.Session {
	return &stemcells.Session{Call: s.Call, Options: s.config.Stemcell, API: s.stemcellAPI,
		Connect: s.ensureClient}
}

func (s *requestSession) diskSession() *disk.Session {
	return &disk.Session{Call: s.Call}
}

// info is the result of the method info.
type info struct {
	APIVersion      int      `json:"api_version"`
	StemcellFormats []string `json:"stemcell_formats"`
}

func getInfo() (info, error) {
	return info{APIVersion: apiVersion, StemcellFormats: stemcell.Formats()}, nil
}

// createVM returns the handler of create_vm. Its result is the VM's CID and the networks of the request.
func (s *requestSession) createVM() any {
	return func(agentID, stemcellCID string, properties json.RawMessage,
		networks network.Networks, disks []string, env json.RawMessage) (string, network.Networks, error) {
		cid, err := s.vmSession().Create(vm.Request{
			AgentID: agentID, Stemcell: stemcellCID, Properties: properties, Networks: networks, Disks: disks, Env: env,
		})
		return cid, networks, err
	}
}
