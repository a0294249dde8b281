package vm

import (
	"encoding/json"

	"bosh-kubernetes-cpi/cpi/call"
	"bosh-kubernetes-cpi/cpi/node/api"
	"bosh-kubernetes-cpi/kube/document"
)

// environment contains the keys of a VM's env that the CPI uses, and those that have no effect in a Pod. The agent gets the whole env. See
// type Env in its settings/settings.go, and env of the director's instance groups.
type environment struct {
	BOSH struct {
		Group    string `json:"group"`
		SwapSize *int64 `json:"swap_size"`
	} `json:"bosh"`
	PersistentDiskFS           string   `json:"persistent_disk_fs"`
	PersistentDiskMountOptions []string `json:"persistent_disk_mount_options"`
	PersistentDiskPartitioner  string   `json:"persistent_disk_partitioner"`
}

func parseEnv(env json.RawMessage) (environment, error) {
	var parsed environment
	if err := document.DecodeKnown("env", env, &parsed); err != nil {
		return parsed, call.InvalidPropertyf("%w", err)
	}
	if fs := parsed.PersistentDiskFS; fs != "" && !api.IsFilesystem(fs) {
		return parsed, call.InvalidPropertyf("env.persistent_disk_fs %q is not valid; use ext4 or xfs", fs)
	}
	return parsed, nil
}

// warnIgnored logs the keys that have no effect in a Pod.
func (e environment) warnIgnored(s *Session) {
	if e.BOSH.SwapSize != nil {
		s.Log.Warn("ignoring a key of the VM's env", "key", "env.bosh.swap_size", "reason", "the kubelet decides about swap")
	}
	if e.PersistentDiskPartitioner != "" {
		s.Log.Warn("ignoring a key of the VM's env", "key", "env.persistent_disk_partitioner", "reason", "persistent disks have no partitions")
	}
}
