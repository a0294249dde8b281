package agentsettings

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Names of the Files. The values for the VM's start script are in separate files, so that the script does not parse the settings.
const (
	SettingsFile     = "settings.json"    // see SettingsJSON
	ConfigPatchFile  = "agent.patch.json" // see ConfigPatch
	MountOptionsFile = "mount-options"    // of persistent disks, separated by commas as mount(8) accepts them
	NameServersFile  = "name-servers"     // of all networks, one per line
)

// Files maps the names of the files for a VM's agent and start script to their contents.
type Files map[string][]byte

// Files returns the files for the VM. If the agent could not decode the env, the error names the invalid key.
func (o Options) Files(vm VM) (Files, error) {
	settings, err := o.SettingsJSON(vm)
	if err != nil {
		return nil, err
	}
	options, err := vm.mountOptions()
	if err != nil {
		return nil, err
	}
	return Files{
		SettingsFile:     settings,
		ConfigPatchFile:  []byte(ConfigPatch),
		MountOptionsFile: []byte(strings.Join(options, ",")),
		NameServersFile:  []byte(strings.Join(vm.nameServers(), "\n")),
	}, nil
}

// mountOptions returns the mount options of persistent disks from the env. The agent reads them from there, too: see type Env in its
// settings/settings.go.
func (v VM) mountOptions() ([]string, error) {
	if len(v.Env) == 0 {
		return nil, nil
	}
	var env struct {
		MountOptions []string `json:"persistent_disk_mount_options"`
	}
	if err := json.Unmarshal(v.Env, &env); err != nil {
		return nil, fmt.Errorf("env is not valid for the agent: %w", err)
	}
	return env.MountOptions, nil
}

func (v VM) nameServers() []string {
	var servers []string
	for _, name := range slices.Sorted(maps.Keys(v.Networks)) {
		servers = append(servers, v.Networks[name].DNS...)
	}
	return servers
}
