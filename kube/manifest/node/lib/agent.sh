# The agent's own configuration.

# configure_agent: the stemcell's agent.json may be made for another kind of machine. What the CPI wants of
# every agent comes as a change to it; the rest is the stemcell's to say, which knows its service manager and
# its agent's newest options. A start that finds it changed changes nothing.
configure_agent() {
  json merge "$bosh/agent.json" "$given/agent.patch.json" >"$bosh/agent.json.new"
  mv -T "$bosh/agent.json.new" "$bosh/agent.json"
  install -D -m 0600 "$given/settings.json" "$bosh/warden-cpi-agent-env.json"
}
