# Waits until an attachment has brought its disk.
#
# Environment: DISK (the CID).
. lib/shell.sh
. lib/pause.sh
. lib/lock.sh

until held "$root/devices/.$DISK.lock"; do pause 0.02; done
