# Attaches a disk to a running VM: formats the disk if it is blank, grows its filesystem to the size of the volume, and publishes the
# device node. All of these steps are idempotent. After a signal to stop, waits until nothing uses the device, unpublishes it, and exits.
#
# Environment:
#   DISK         the CID
#   SIZE_MIB     the size of the disk
#   FILESYSTEM   ext4 or xfs
#   FORMATTED    true if a VM had the disk before
#   PREALLOCATE  true to allocate the full size of an image file
#   VM           NAMESPACE/NAME
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

# publish_node creates the device node under another name and renames it, because mknod sets the mode only after it creates the node.
publish_node() {
  local number
  number=$(device_numbers "$device")
  rm -f "$node.new"
  mknod -m 0660 "$node.new" b "${number%:*}" "${number#*:}"
  mv -T "$node.new" "$node"
}

publish_device() {
  rm -f "$lock"
  prepare_device
  if used_by_others "$device"; then
    fail "cannot publish disk $DISK in VM $VM: it is in use outside of the VM: $(users "$device") [disk-in-use]"
  fi
  set_xfs_uuid "$device"
  grow_filesystem "$device"
  mark_attached
  publish_node
}

# unpublish_and_free_loop removes the node and frees the loop device, unless the VM uses the device or a program of this check is killed.
# Another disk can reuse the loop device, and the VM must not find that disk at this node.
unpublish_and_free_loop() {
  local openers
  if is_device "$node"; then
    openers=$(vm_openers "$device") && [[ -z $openers ]] && check_exclusive "$device" "$node" || return 0
  fi
  free_loop "$device"
}

# on_exit COMMAND is the EXIT trap; COMMAND is the last command. The CPI expects status 1 for a failure with a message. An exit in the
# subshell does not replace the message.
on_exit() {
  local status=$?
  ((status == 0)) || ! is_loop "${device:-}" || (unpublish_and_free_loop) || true
  ((status <= 1)) || fail "cannot attach disk $DISK: a command failed with exit status $status: $1 [disk-attach-failed]"
  exit "$status"
}

# unpublish_device waits until the device is free. Until then, the disk must not be attached to another VM.
unpublish_device() {
  local logged=no openers
  until openers=$(vm_openers "$device") || openers=unknown; [[ -z $openers ]] && check_exclusive "$device" "$node" 2>/dev/null; do
    # An exclusivity check may already have removed the node. The subshell keeps is_device from exiting: the kubelet would unmap the volume.
    [[ -n $openers ]] || (is_device "$node") || ! check_exclusive "$device" 2>/dev/null || break
    [[ $logged == yes ]] || { echo "waiting until disk $DISK is free: $(users "$device")" >&2; logged=yes; }
    pause 0.2
  done
  rm -f "$node"
  # losetup may be killed, or somebody else may have freed the device.
  until ! is_loop "$device" || losetup --detach "$device" || [[ ! -e $root/sys/block/${device##*/}/loop ]]; do pause 1; done
  rm -f "$lock" # until here, an exclusivity check leaves the loop device to this program
}

trap 'on_exit "$BASH_COMMAND"' EXIT
run_attachment publish_device unpublish_device
