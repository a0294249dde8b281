# Releases a disk that is published as a directory: checks that nothing in the VM uses it, and unmounts it. If something does, it fails
# and prints only the processes: the CPI adds the rest of the message, and its code.
#
# Environment: that of the attachment.
. lib/shell.sh
. lib/pause.sh
. lib/lock.sh
. lib/processes.sh
. lib/directory.sh
. lib/signals.sh
. lib/attachment.sh

wait_published mountpoint -q "$node"
found=$(volume_usage mounts)
[[ -z $found ]] || fail "$found"
# The kernel refuses this while a process works in a mount to which the directory was propagated.
unmount_directory || fail "$(volume_usage users)"
# A process may have started to use the disk in the meantime.
found=$(volume_usage users)
[[ -z $found ]] || { mount_directory; fail "$found"; }
