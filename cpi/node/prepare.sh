# The attachment of a disk that becomes a volume of the VM Pod. Before that Pod starts, formats a Block volume, or grows its filesystem. A
# Filesystem volume becomes a directory in the VM. Then waits for a signal to stop.
#
# Environment: as for attach.sh, without PREALLOCATE.
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

# prepare_volume is like attach.sh, but does not publish a node. It runs only at the first start. Later, the VM may use the device
# without being visible, for example in a sandbox such as gVisor.
prepare_volume() {
  local prepared=$root/devices/.prepared
  [[ ! -e $prepared ]] || return 0
  if is_device "$root/dev/volume"; then
    device=$root/dev/volume
    check_exclusive "$device" ||
      fail "cannot prepare disk $DISK for VM $VM: it is in use outside of the VM: $(users "$device") [disk-in-use]"
    prepare_device
    set_xfs_uuid "$device"
    grow_filesystem "$device"
  elif ! was_formatted && [[ -e $image ]]; then
    fail "the volume of disk $DISK has an image file, which VM $VM with disk_strategy: recreate cannot use; nothing was changed;" \
      "attach the disk to a VM without disk_strategy: recreate [volume-not-blank]"
  fi
  touch "$prepared"
  sync "$prepared"
}

run_attachment prepare_volume true # nothing is published
