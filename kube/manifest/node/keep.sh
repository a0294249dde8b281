# For a machine whose own Pod has the claim: waits.
#
# Environment: DISK (the CID).
. lib/shell.sh
. lib/pause.sh
. lib/lock.sh
. lib/signals.sh
. lib/attachment.sh

attach true end
