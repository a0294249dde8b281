# For a machine whose own Pod is to have the claim: makes or grows the filesystem before the machine has
# it, then waits.
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

# What hold does, short of a node in the machine. A sandbox does not show that it uses the device: only the
# first start may touch it.
prepare_volume() {
  local prepared=$root/devices/.prepared
  [[ ! -e $prepared ]] || return 0
  if is_device "$root/dev/volume"; then
    device=$root/dev/volume
    exclusively "$device" || fail "disk $DISK is still in use outside of VM $VM: $(users "$device")"
    find_device
    distinguish "$device"
    grow "$device"
  fi
  touch "$prepared"
  sync "$prepared"
}

attach prepare_volume end
