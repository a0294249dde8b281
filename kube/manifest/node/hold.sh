# Makes a disk appear as a device in a machine, and holds it there: makes the filesystem on a blank disk,
# grows one that has room, and publishes the device node (a restart finds everything done); then it waits.
# Told to end, it leaves once nothing uses the device.
#
# Environment: DISK (the CID), SIZE_MIB, FILESYSTEM, FORMATTED (true: it had one once), VM (namespace/name).
. lib/shell.sh
. lib/pause.sh
. lib/lock.sh
. lib/device.sh
. lib/processes.sh
. lib/users.sh
. lib/loop.sh
. lib/filesystem.sh
. lib/files.sh
. lib/volume.sh
. lib/signals.sh
. lib/attachment.sh

# The node appears whole, or not at all.
publish() {
  local at
  at=$(numbers "$device")
  rm -f "$node.new"
  mknod -m 0660 "$node.new" b "${at%:*}" "${at#*:}"
  mv -T "$node.new" "$node"
}

bring_device() {
  rm -f "$lock"
  find_device
  if used_by_others "$device"; then
    fail "disk $DISK is still in use outside of VM $VM: $(users "$device")"
  fi
  distinguish "$device"
  grow "$device"
  mark_shown
  publish
}

# ended COMMAND: what is done however this ends, but by a kill. The CPI takes status 1 for a failure with a
# reason.
ended() {
  local status=$?
  # A loop device that is freed can be another disk's: the VM must not find it.
  ! is_loop "${device:-}" || ! is_device "$node" || exclusively "$device" "$node" || true
  free_loop "${device:-}"
  ((status <= 1)) || fail "disk $DISK: status $status of $1"
}

# Leaves when the device is free. Until then nobody else may have the disk.
leave() {
  local told=no
  until exclusively "$device" "$node" 2>/dev/null; do
    is_device "$node" || ! exclusively "$device" 2>/dev/null || break
    [[ $told == yes ]] || { echo "disk $DISK stays until it is free: $(users "$device")" >&2; told=yes; }
    pause 0.2
  done
  rm -f "$node" "$lock"
  exit 0 # and free the loop device
}

trap 'ended "$BASH_COMMAND"' EXIT
attach bring_device leave
