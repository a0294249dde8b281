//go:build linux

package boot

import (
	"context"
	"fmt"

	"bosh-kubernetes-cpi/cpi/node/boot/files"
)

// configureAgent writes the agent's settings, and patches its agent.json, because the stemcell may be built for another IaaS. It keeps the
// stemcell's value for every option that the patch does not set, because the stemcell knows its service manager and agent version. If
// agent.json is damaged, configureAgent restores it from the image's file.
func (v *vm) configureAgent(context.Context) error {
	patch, err := v.sys.ReadFile(settings + "/agent.patch.json")
	if err != nil {
		return err
	}
	if _, err := parseObject(patch); err != nil {
		return fmt.Errorf("read %s/agent.patch.json: %w", settings, err)
	}
	current, err := files.Read(v.sys, agentConfig)
	if err != nil {
		return err
	}
	merged, err := mergePatch(current, patch)
	if err != nil {
		v.log.Print("agent.json is damaged, for example by a power failure: restoring it from the stemcell")
		if merged, err = mergePatch(v.agentConfig, patch); err != nil {
			return fmt.Errorf("read the stemcell's agent.json: %w", err)
		}
	}
	if err := files.Update(v.sys, agentConfig, append(merged, '\n'), 0o644); err != nil {
		return err
	}
	agentSettings, err := v.sys.ReadFile(settings + "/settings.json")
	if err != nil {
		return err
	}
	return files.Update(v.sys, agentDir+"/warden-cpi-agent-env.json", agentSettings, 0o600)
}
