# Succeeds if the agent is connected to its message bus, or listens for connections itself. After attach_disk, the director sends its
# next request immediately and does not retry it. Connections from the loopback address do not count: they are to monit.
. lib/shell.sh

for exe in "$root"/proc/[0-9]*/exe; do
  [[ $(readlink "$exe") == */bosh-agent* ]] || continue
  cd "${exe%exe}" || continue
  # Fields of net/tcp: $2 is the local address, $3 the remote address, $4 the state (01: established, 0A: listening), $10 the inode.
  ! { readlink fd/* || true; } | awk '
    FILENAME == "-" { if (sub(/^socket:\[/, "") && sub(/\]$/, "")) sockets[$0]; next }
    ($4 == "01" || $4 == "0A") && $10 in sockets && $2 $3 !~ /0100007F:/ { found = 1 }
    END { exit !found }' - net/tcp net/tcp6 || exit 0
done
fail "the agent is not connected to its message bus [agent-not-connected]"
