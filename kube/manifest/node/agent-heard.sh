# Succeeds once the agent has a connection to its message bus, or waits for one to itself: after attach_disk
# the director speaks to it at once, and only once. What it has on the loopback is for monit.
. lib/shell.sh

for exe in "$root"/proc/[0-9]*/exe; do
  [[ $(readlink "$exe") == */bosh-agent* ]] || continue
  cd "${exe%exe}" || continue
  ! { readlink fd/* || true; } | awk '
    FILENAME == "-" { if (sub(/^socket:\[/, "") && sub(/\]$/, "")) own[$0]; next }
    ($4 == "01" || $4 == "0A") && $10 in own && $2 $3 !~ /0100007F:/ { found = 1 }
    END { exit !found }' - net/tcp net/tcp6 || exit 0
done
fail "the agent has not reached its message bus"
