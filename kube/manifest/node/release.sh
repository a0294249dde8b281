# Proves that nothing uses a disk's device, and takes its node away in the same moment. It fails when the
# device is in use, and names the users. One that is in use for a moment, as by a program that looks at new devices, is
# tried again.
#
# Environment: that of the attachment.
. lib/shell.sh
. lib/device.sh
. lib/pause.sh
. lib/lock.sh
. lib/processes.sh
. lib/users.sh
. lib/loop.sh
. lib/signals.sh
. lib/attachment.sh

# The machine's folder may lie on a filesystem mounted nodev: $device is a node in this container's own
# /dev, beside the one in the machine's folder.
open_elsewhere() {
  local at
  at=$(numbers "$node")
  device=$root/dev/bosh-disk
  [[ $at != 7:* ]] || device=$root/dev/loop${at#7:}
  is_device "$device" || mknod "$device" b "${at%:*}" "${at#*:}"
}

await_published is_device "$node"
open_elsewhere
tries=0
until exclusively "$device" "$node"; do
  ((tries++ < 15)) || fail "$(users "$device")"
  pause 0.2
done
held "$lock" || free_loop "$device" # its attachment does that when it ends
