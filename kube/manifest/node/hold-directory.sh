# Makes a disk with `attach: bind` appear as a directory in a machine, and holds it there: mounts the volume
# in the machine's folder, then waits. Told to end, it leaves once nothing in the machine uses it.
#
# Environment: DISK (the CID), VM (namespace/name).
. lib/shell.sh
. lib/pause.sh
. lib/lock.sh
. lib/processes.sh
. lib/directory.sh
. lib/signals.sh
. lib/attachment.sh

# arrives: succeeds unless the machine runs and does not see the directory.
arrives() {
  local process runs=no
  while read -r process; do
    ! grep -qs " /dev/bosh/$DISK " "$root/proc/$process/mountinfo" || return 0
    runs=yes
  done < <(machine_processes "$VM")
  [[ $runs == no ]]
}

# used_by_other_machine: succeeds when one has the volume mounted, and tells who in $users.
used_by_other_machine() {
  local other
  while read -r other; do
    [[ $other != "$VM" ]] || continue
    users=$(inside mounts "$other")
    [[ -z $users ]] || return 0
  done < <(processes all | awk '$2 != "-" { print $2 }' | sort -u)
  return 1
}

bring_directory() {
  rm -f "$lock"
  if used_by_other_machine; then
    fail "disk $DISK is still in use outside of VM $VM: $users"
  fi
  place
  arrives || { take_away; fail "disk $DISK does not appear in VM $VM: the node's $VM folder does not propagate mounts into it; recreate the VM"; }
}

leave_directory() {
  local told=no found
  until found=$(inside mounts) && [[ -z $found ]] && take_away && found=$(inside users) && [[ -z $found ]]; do
    [[ $told == yes ]] || { echo "disk $DISK stays until it is free: $found" >&2; told=yes; }
    pause 0.5
  done
  [[ ! -d $node ]] || rmdir "$node"
  rm -f "$lock"
  exit 0
}

# ended COMMAND: what is done however this ends, but by a kill. A directory that the VM has begun to use stays until the next
# attachment. The CPI takes status 1 for a failure with a reason.
ended() {
  local status=$? found
  ((status == 0)) || { found=$(inside mounts) && [[ -z $found ]] && take_away; } || true
  ((status <= 1)) || fail "disk $DISK: status $status of $1"
}

trap 'ended "$BASH_COMMAND"' EXIT
attach bring_directory leave_directory
