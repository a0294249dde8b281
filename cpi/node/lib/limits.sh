# Resource limits of the VM's processes.

# max_open_files is systemd's default hard limit, DefaultLimitNOFILE=1024:524288.
max_open_files=524288

# raise_limits raises the hard limits, because the container runtime's are meant for one program, but a VM runs many. It does not change
# soft limits: programs raise their own.
raise_limits() {
  local current
  ulimit -Hu unlimited 2>/dev/null || true
  ulimit -Hc unlimited 2>/dev/null || true
  current=$(ulimit -Hn)
  [[ $current != unlimited ]] && ((current < max_open_files)) || return 0
  ulimit -Hn "$max_open_files" 2>/dev/null ||
    log "programs can open $current files, not $max_open_files as on other VMs: the container is not allowed to raise the limit"
}
