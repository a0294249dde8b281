# Waits until the attachment publishes its disk.
#
# Environment: DISK (the CID).
. lib/shell.sh
. lib/pause.sh
. lib/lock.sh

until lock_held "$root/devices/.$DISK.lock"; do pause 0.02; done
