package cpi

import (
	"encoding/json"

	"bosh-kubernetes-cpi/cpi/disk"
	"bosh-kubernetes-cpi/cpi/machine"
	"bosh-kubernetes-cpi/cpi/network"
	"bosh-kubernetes-cpi/stemcell"
)

// method is one of the protocol's.
type method struct {
	// cluster tells that the session needs the cluster's client. A method without it answers at once, and
	// when no API server can be reached.
	cluster bool
	// in returns the function that serves the method in this session; its parameters are the method's
	// arguments, see https://bosh.io/docs/cpi-api-v2/.
	in func(*session) any
}

// methods are all that this CPI serves; docs.bosh.io lists what there is.
var methods = map[string]method{
	"info":                          {in: func(*session) any { return describe }},
	"create_stemcell":               {in: func(s *session) any { return s.createStemcell }},
	"delete_stemcell":               {in: func(s *session) any { return s.deleteStemcell }},
	"calculate_vm_cloud_properties": {in: func(*session) any { return machine.Calculate }},

	"create_vm":       {cluster: true, in: (*session).createVM},
	"delete_vm":       {cluster: true, in: func(s *session) any { return s.machines().Delete }},
	"has_vm":          {cluster: true, in: func(s *session) any { return s.machines().Has }},
	"reboot_vm":       {cluster: true, in: func(s *session) any { return s.machines().Reboot }},
	"set_vm_metadata": {cluster: true, in: func(s *session) any { return s.machines().SetMetadata }},
	"attach_disk":     {cluster: true, in: (*session).attachDisk},
	"detach_disk":     {cluster: true, in: func(s *session) any { return s.machines().Detach }},
	"get_disks":       {cluster: true, in: func(s *session) any { return s.machines().Disks }},

	"create_disk":       {cluster: true, in: func(s *session) any { return s.disks().Create }},
	"delete_disk":       {cluster: true, in: func(s *session) any { return s.disks().Delete }},
	"has_disk":          {cluster: true, in: func(s *session) any { return s.disks().Has }},
	"set_disk_metadata": {cluster: true, in: func(s *session) any { return s.disks().SetMetadata }},
	"resize_disk":       {cluster: true, in: func(s *session) any { return s.disks().Resize }},
	"update_disk":       {cluster: true, in: func(s *session) any { return s.disks().Update }},
	"snapshot_disk":     {cluster: true, in: func(s *session) any { return s.disks().Snapshot }},
	"delete_snapshot":   {cluster: true, in: func(s *session) any { return s.disks().DeleteSnapshot }},

	"create_network": {cluster: true, in: func(s *session) any { return s.networks().Create }},
	"delete_network": {cluster: true, in: func(s *session) any { return s.networks().Delete }},
}

func (s *session) machines() *machine.Session {
	timeouts := s.config.Timeouts
	return &machine.Session{Call: s.Call, Options: machine.Options{
		Agent: s.config.Agent, Network: s.config.Network, Disk: s.config.Disk, Stemcell: s.config.Stemcell, StemcellAPI: s.stemcellAPI,
		Unschedulable: timeouts.Unschedulable.Duration, AttachTime: timeouts.AttachDisk.Duration,
	}}
}

func (s *session) disks() *disk.Session {
	return &disk.Session{Call: s.Call, Start: s.config.Timeouts.AttachDisk.Duration}
}

func (s *session) networks() *network.Session { return &network.Session{Call: s.Call} }

// info is the answer to the method of that name.
type info struct {
	APIVersion      int      `json:"api_version"`
	StemcellFormats []string `json:"stemcell_formats"`
}

func describe() (info, error) {
	return info{APIVersion: apiVersion, StemcellFormats: stemcell.Formats()}, nil
}

// createVM returns the VM's CID, and from version 2 of the API on its networks, as they were sent.
func (s *session) createVM() any {
	create := func(agentID, stemcellCID string, properties json.RawMessage,
		networks network.Networks, disks []string, env json.RawMessage) (string, network.Networks, error) {
		cid, err := s.machines().Create(machine.Request{
			AgentID: agentID, Stemcell: stemcellCID, Properties: properties, Networks: networks, Disks: disks, Env: env,
		})
		return cid, networks, err
	}
	if s.version >= 2 {
		return create
	}
	return func(agentID, stemcellCID string, properties json.RawMessage,
		networks network.Networks, disks []string, env json.RawMessage) (string, error) {
		cid, _, err := create(agentID, stemcellCID, properties, networks, disks, env)
		return cid, err
	}
}

// attachDisk returns the disk's hint for the agent, from version 2 of the API on.
func (s *session) attachDisk() any {
	if s.version >= 2 {
		return s.machines().Attach
	}
	return func(vm, disk string) error {
		_, err := s.machines().Attach(vm, disk)
		return err
	}
}
