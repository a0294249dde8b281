# Exclusivity check of a disk that is published as a directory: checks that nothing in the VM uses it, and unmounts it. If it is in use, prints only the
# processes and fails; the CPI adds the rest of the message and the code.
#
# Environment: the same as the attachment's.
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
# The kernel does not unmount the directory while a process uses a mount to which it was propagated.
unmount_directory || exit_if_killed $? || fail "$(current_volume_usage users)"
# A process may have started to use the disk in the meantime.
found=$(volume_usage users) || { status=$?; mount_directory; exit "$status"; }
[[ -z $found ]] || { mount_directory; fail "$found"; }
