# The agent's own configuration.

# configure_agent STOCK: the stemcell's agent.json may be made for another kind of machine. What the CPI wants of
# every agent comes as a change to it; the rest is the stemcell's to say, which knows its service manager and
# its agent's newest options. A start that finds it changed changes nothing. A damaged one is restored from STOCK, the
# content of the image's own.
configure_agent() {
  local merged
  if ! merged=$(json merge "$bosh/agent.json" "$given/agent.patch.json"); then
    say "agent.json is damaged, as after a power cut: restoring it from the stemcell"
    merged=$(json merge <(printf '%s' "$1") "$given/agent.patch.json")
  fi
  printf '%s\n' "$merged" | update "$bosh/agent.json" 0644
  update "$bosh/warden-cpi-agent-env.json" 0600 <"$given/settings.json"
}
