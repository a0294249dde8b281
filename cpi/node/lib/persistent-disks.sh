# The persistent disks at the start of a VM.

# disks_are_hot_plugged succeeds if disks are attached and detached while the VM runs, in a directory on the node. It fails in a recreated
# VM: its disks are volumes of the VM Pod.
disks_are_hot_plugged() { mountpoint -q "$devices" || exit_if_killed $?; }

# is_attached CID succeeds if the disk has a device node and a running attachment. In a recreated VM, it may also be a directory.
is_attached() {
  if disks_are_hot_plugged; then
    is_device "$devices/$1" && lock_held "$devices/.$1.lock"
  else
    is_device "$devices/$1" || mountpoint -q "$devices/$1" || exit_if_killed $?
  fi
}

# agent_disks prints the CIDs of the disks that the agent knows, one per line. It fails if the agent's file is damaged, or does not exist,
# for example because it was on a tmpfs.
agent_disks() {
  local hints=$agent_dir/persistent_disk_hints.json
  [[ -e $hints ]] && json keys "$hints"
}

# restore_mount_record RECORD restores the agent's record of its mounted disk. The record can be empty after a power failure shortly after
# the disk was mounted. If the agent knows one disk only, that is the mounted disk.
restore_mount_record() {
  local known
  if ! { known=$(agent_disks) || exit_if_killed $?; } || [[ $known == *$'\n'* ]]; then
    fail "the agent's record of its mounted disk is damaged, for example by a power failure;" \
      "recreate the VM, which keeps the data of its disks [agent-record-damaged]"
  fi
  printf '%s' "$known" | update_file "$1" 0644
}

# mount_persistent_disk mounts the disk in the agent's record, before a job can start. The agent itself mounts only partitioned disks after
# a boot, and this CPI's disks are not partitioned.
mount_persistent_disk() {
  local record=$agent_dir/managed_disk_settings.json cid known tries=0 error="" options
  [[ -e $record ]] || return 0
  [[ -s $record ]] || restore_mount_record "$record"
  cid=$(<"$record")
  [[ -n $cid ]] || return 0
  options=$(<"$settings/mount-options")
  if { known=$(agent_disks) || exit_if_killed $?; } && [[ $'\n'$known$'\n' != *$'\n'$cid$'\n'* ]]; then
    log "the VM no longer has disk $cid according to the agent: removing the record that it was mounted"
    rm -f "$record"
    return 0
  fi
  if ! disks_are_hot_plugged && [[ ! -e $devices/$cid ]]; then
    log "the VM no longer has disk $cid as a volume: removing the record that it was mounted"
    rm -f "$record"
    return 0
  fi
  # The VM stopped while the agent migrated data from one disk to another. The agent's record does not show which of the two to use, and
  # the agent would fail to boot. The director knows it, and attaches the right disk to a new VM.
  if [[ $known == *$'\n'* ]]; then
    fail "the VM stopped in the middle of a migration between its disks;" \
      "recreate the VM, which keeps the data of its disks [disk-migration-interrupted]"
  fi
  until is_attached "$cid" &&
    { error=$(mount "$devices/$cid" "$root/var/vcap/store" ${options:+-o "$options"} 2>&1) || exit_if_killed $?; }; do
    if ((tries++ % 150 == 0)); then
      log "waiting for disk $cid to be attached before any job may start${error:+: $error}"
    fi
    sleep 0.2
  done
  log "disk $cid is mounted at /var/vcap/store"
}

# wait_for_other_disks waits for the other disks of the VM before a job can start: additional disks of the instance group, and dynamic
# disks, for which the agent creates links. It waits for at most one minute in total, because the agent may not know that a disk is gone.
wait_for_other_disks() {
  local cid known dynamic tries=0
  disks_are_hot_plugged || return 0
  known=$(agent_disks) || exit_if_killed $? || true
  dynamic=$(ls "$root/var/vcap/data/dynamic_disks" 2>/dev/null) || exit_if_killed $? || true
  for cid in $known $dynamic; do
    is_attached "$cid" || log "waiting at most one minute for disk $cid to be attached"
    until is_attached "$cid"; do
      ((tries++ < 300)) || { log "starting without disk $cid"; break; }
      sleep 0.2
    done
  done
}
