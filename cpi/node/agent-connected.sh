# Succeeds once the agent is connected to its message bus, or listens for connections itself: after attach_disk the director
# sends its next request at once, and does not repeat it. Connections from the loopback address are those to monit.
. lib/shell.sh

for exe in "$root"/proc/[0-9]*/exe; do
  [[ $(readlink "$exe") == */bosh-agent* ]] || continue
  cd "${exe%exe}" || continue
  # Of net/tcp: $2 and $3 are the local and the remote address, $4 is the state (01 is established, 0A is listening), $10 the inode.
  ! { readlink fd/* || true; } | awk '
    FILENAME == "-" { if (sub(/^socket:\[/, "") && sub(/\]$/, "")) own[$0]; next }
    ($4 == "01" || $4 == "0A") && $10 in own && $2 $3 !~ /0100007F:/ { found = 1 }
    END { exit !found }' - net/tcp net/tcp6 || exit 0
done
fail "the agent is not connected to its message bus [agent-not-connected]"
