# Attaches a disk with `attach: bind` to a VM as a directory: mounts the volume in the VM's directory on the node. After a signal to stop,
# waits until nothing in the VM uses the volume, unmounts it, and exits.
#
# Environment: DISK (the CID), VM (namespace/name).
. lib/shell.sh
. lib/pause.sh
. lib/lock.sh
. lib/processes.sh
. lib/directory.sh
. lib/signals.sh
. lib/attachment.sh

# visible_in_vm fails if the VM is running but does not see the directory.
visible_in_vm() {
  local process processes
  processes=$(vm_processes "$VM") || exit $?
  for process in $processes; do
    if grep -qs " /dev/bosh/$DISK " "$root/proc/$process/mountinfo" || exit_if_killed $?; then return 0; fi
  done
  [[ -z $processes ]]
}

# other_users prints the processes of another VM that has the volume mounted.
other_users() {
  local other others found
  others=$(processes all | awk -v vm="$VM" '$2 != "-" && $2 != vm { print $2 }' | sort -u) || return $?
  for other in $others; do
    found=$(volume_usage mounts "$other") || return $?
    [[ -z $found ]] || { echo "$found"; return 0; }
  done
}

publish_directory() {
  local users
  rm -f "$lock"
  users=$(other_users)
  [[ -z $users ]] || fail "cannot publish disk $DISK in VM $VM: it is in use in another VM: $users [disk-in-use]"
  mount_directory
  visible_in_vm || {
    unmount_directory || true
    fail "cannot publish disk $DISK in VM $VM: the VM's directory on the node does not propagate mounts;" \
      "recreate the VM [mount-not-propagated]"
  }
}

# unpublish_directory waits until nothing in the VM uses the disk, and unmounts the disk.
unpublish_directory() {
  local logged=no found
  until found=$(volume_usage mounts) && [[ -z $found ]] && unmount_directory && found=$(volume_usage users) && [[ -z $found ]]; do
    [[ $logged == yes ]] || { echo "waiting until disk $DISK is free: $found" >&2; logged=yes; }
    pause 0.5
  done
  [[ ! -d $node ]] || rmdir "$node"
  # The volume stays mounted until the kubelet removes it. Until then, a snapshot would not contain data that is only in memory.
  sync --file-system "$root/volume"
  rm -f "$lock"
}

# on_exit COMMAND is the EXIT trap; COMMAND is the last command. After a failure, it unmounts the directory unless the VM already uses it.
# The CPI expects status 1 for a failure with a message.
on_exit() {
  local status=$? found
  ((status == 0)) || { found=$(volume_usage mounts) && [[ -z $found ]] && unmount_directory; } || true
  ((status <= 1)) || fail "cannot attach disk $DISK: a command failed with exit status $status: $1 [disk-attach-failed]"
}

trap 'on_exit "$BASH_COMMAND"' EXIT
run_attachment publish_directory unpublish_directory
