# Releases a disk that is published as a device: runs the exclusivity check, and removes the node while it has the device open. If the
# device is in use, it fails and prints only the processes: the CPI adds the rest of the message, and its code. It retries for some
# seconds, because programs that inspect new devices, such as udev, use them for a moment.
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

# make_own_node creates a node for the device in this container's /dev and sets $device to it: the directory of the VM may be on a
# filesystem that is mounted with nodev.
make_own_node() {
  local number
  number=$(device_numbers "$node")
  device=$root/dev/bosh-disk
  [[ $number != 7:* ]] || device=$root/dev/loop${number#7:}
  is_device "$device" || mknod "$device" b "${number%:*}" "${number#*:}"
}

wait_published is_device "$node"
make_own_node
tries=0
until check_exclusive "$device" "$node"; do
  ((tries++ < 15)) || fail "$(users "$device")"
  pause 0.2
done
lock_held "$lock" || free_loop "$device" # an attachment that runs frees it itself
