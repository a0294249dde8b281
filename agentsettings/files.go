package agentsettings

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Names of the Files. What a machine's start script needs of the settings lies beside them, so that it need
// not look into them.
const (
	SettingsFile     = "settings.json"    // the agent's settings
	ConfigPatchFile  = "agent.patch.json" // Config
	MountOptionsFile = "mount-options"    // of persistent disks, joined by commas as mount(8) takes them
	NameServersFile  = "name-servers"     // those of all networks, one a line
)

// Files are what a machine is given for its agent, by name.
type Files map[string][]byte

// Files returns what the machine is given. Its error names the part of the environment that the agent could
// not read.
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

// mountOptions are those of persistent disks, where the agent finds them too: its Env in settings/settings.go.
func (v VM) mountOptions() ([]string, error) {
	if len(v.Env) == 0 {
		return nil, nil
	}
	var env struct {
		MountOptions []string `json:"persistent_disk_mount_options"`
	}
	if err := json.Unmarshal(v.Env, &env); err != nil {
		return nil, fmt.Errorf("env cannot be read by the agent: %w", err)
	}
	return env.MountOptions, nil
}

func (v VM) nameServers() []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(v.Networks)) {
		all = append(all, v.Networks[name].DNS...)
	}
	return all
}

// ConfigPatch is what this CPI wants of every agent's own configuration, agent.json, as a change to the
// stemcell's: a JSON Merge Patch (RFC 7396). Disks come as devices at the very path that the agent is told,
// and with a filesystem, nothing is partitioned, and the settings come as one file and from nowhere else.
//
// It is a change, made in the machine at each start, because only there is every stemcell's agent.json at
// hand: the CPI never sees a light stemcell's image. What it does not name stays as the stemcell has it: the
// ServiceManager, and options of agents that are newer than this CPI.
//
// The options are the agent's, those of platform/linux_platform.go and of
// infrastructure/settings_source_factory.go; UseRegistry, which older agents have, would have them look for
// the settings elsewhere.
const ConfigPatch = `{
  "Platform": {"Linux": {
    "UsePreformattedPersistentDisk": true,
    "BindMountPersistentDisk": false,
    "SkipDiskSetup": true,
    "UseDefaultTmpDir": true,
    "DevicePathResolutionType": ""
  }},
  "Infrastructure": {"Settings": {
    "Sources": [{"Type": "File", "SettingsPath": "/var/vcap/bosh/warden-cpi-agent-env.json"}],
    "UseRegistry": null
  }}
}
`
