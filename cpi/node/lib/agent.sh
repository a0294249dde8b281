# The configuration of the agent.

# configure_agent ORIGINAL writes the agent's settings, and patches its agent.json, because the stemcell may be built for another IaaS. It
# keeps the stemcell's value for every option that the patch does not set, because the stemcell knows its service manager and agent version.
# If agent.json is damaged, configure_agent restores it from ORIGINAL, the content of the image's file.
configure_agent() {
  local merged
  if ! { merged=$(json merge "$agent_dir/agent.json" "$settings/agent.patch.json") || exit_if_killed $?; }; then
    log "agent.json is damaged, for example by a power failure: restoring it from the stemcell"
    merged=$(json merge <(printf '%s' "$1") "$settings/agent.patch.json")
  fi
  printf '%s\n' "$merged" | update_file "$agent_dir/agent.json" 0644
  update_file "$agent_dir/warden-cpi-agent-env.json" 0600 <"$settings/settings.json"
}
