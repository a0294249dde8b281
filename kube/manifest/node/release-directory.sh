# Proves that nothing in the machine uses a disk that appears as a directory, and takes it away. It fails
# when it is in use, and names the users.
#
# Environment: that of the attachment.
. lib/shell.sh
. lib/pause.sh
. lib/lock.sh
. lib/processes.sh
. lib/directory.sh
. lib/signals.sh
. lib/attachment.sh

await_published mountpoint -q "$node"
found=$(inside mounts)
[[ -z $found ]] || fail "$found"
# The kernel refuses it while someone works in one of the places where it has appeared.
take_away || fail "$(inside users)"
found=$(inside users)
[[ -z $found ]] || { place; fail "$found"; }
