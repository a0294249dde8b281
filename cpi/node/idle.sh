# The attachment of a disk that is a volume of the VM Pod: waits for a signal to stop.
#
# Environment: DISK (the CID).
. lib/shell.sh
. lib/pause.sh
. lib/lock.sh
. lib/signals.sh
. lib/attachment.sh

run_attachment true true
