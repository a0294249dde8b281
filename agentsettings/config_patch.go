package agentsettings

// ConfigPatch is a JSON Merge Patch (RFC 7396) for the agent's configuration, the stemcell's agent.json. The patched agent expects each
// persistent disk as a device with a filesystem at the path in the disk hint. It does not partition disks, and reads its settings only from
// the settings file.
//
// The start script applies the patch in the VM at each start, because the CPI has no access to the agent.json of a light stemcell. Options
// that are not in the patch keep the stemcell's values, for example ServiceManager and options of later agents.
//
// For the options, see platform/linux_platform.go and infrastructure/settings_source_factory.go of the agent. The option UseRegistry of
// older agents would make them read the settings from another source.
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
