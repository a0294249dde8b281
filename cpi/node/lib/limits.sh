# Resource limits of the VM's processes.

# max_open_files is the default hard limit of systemd, DefaultLimitNOFILE=1024:524288.
max_open_files=524288

# raise_limits raises hard limits: those of a container runtime are meant for one program, and a VM runs many, some of which raise their
# limits. Soft limits stay as they are.
raise_limits() {
  local current
  ulimit -Hu unlimited 2>/dev/null || true
  ulimit -Hc unlimited 2>/dev/null || true
  current=$(ulimit -Hn)
  [[ $current != unlimited ]] && ((current < max_open_files)) || return 0
  ulimit -Hn "$max_open_files" 2>/dev/null ||
    log "programs can open $current files, not $max_open_files as on other VMs: the container may not raise the limit"
}
