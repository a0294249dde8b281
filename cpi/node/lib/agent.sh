# The configuration of the agent.

# configure_agent STOCK writes the settings of the agent, and patches its agent.json, because the stemcell may be built for another IaaS.
# Options that the patch does not have stay as in the stemcell, which knows its service manager and the newest options of its agent. If
# agent.json is patched already, it stays as it is. If it is damaged, it is restored from STOCK, the content of the image's file.
configure_agent() {
  local merged
  if ! merged=$(json merge "$agent_dir/agent.json" "$settings/agent.patch.json"); then
    log "agent.json is damaged, for example by a power failure: restoring it from the stemcell"
    merged=$(json merge <(printf '%s' "$1") "$settings/agent.patch.json")
  fi
  printf '%s\n' "$merged" | update_file "$agent_dir/agent.json" 0644
  update_file "$agent_dir/warden-cpi-agent-env.json" 0600 <"$settings/settings.json"
}
