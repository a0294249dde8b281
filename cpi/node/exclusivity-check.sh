# Exclusivity check: checks that no process of the VM has the device open, opens it exclusively, and
# removes its node while it is open. If the device is in use, prints only the processes and fails; the CPI adds the rest of the message and
# the code. Retries for a few seconds, because programs such as udev open new devices for a moment.
#
# Environment: the same as the attachment's.
. lib/shell.sh
. lib/device.sh
. lib/pause.sh
. lib/lock.sh
. lib/processes.sh
. lib/users.sh
. lib/loop.sh
. lib/signals.sh
. lib/attachment.sh

# create_device_node creates a node for the device in this container's /dev, and sets $device to its path. The node in the VM's directory
# may not be usable, because that directory may be on a filesystem that is mounted with nodev.
create_device_node() {
  local number
  number=$(device_numbers "$node")
  device=$root/dev/bosh-disk
  [[ $number != 7:* ]] || device=$root/dev/loop${number#7:}
  is_device "$device" || mknod "$device" b "${number%:*}" "${number#*:}"
}

wait_published
create_device_node
tries=0
until openers=$(vm_openers "$device") && [[ -z $openers ]] && check_exclusive "$device" "$node"; do
  ((tries++ < 15)) || fail "$(users "$device")"
  pause 0.2
done
lock_held "$lock" || exit_if_killed $? || free_loop "$device" # a running attachment frees it itself
