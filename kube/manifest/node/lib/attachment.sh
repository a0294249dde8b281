# The life of an attachment: it brings its disk, holds it, and lets it go when it is told to end.
#
# Environment: DISK (the CID), VM (namespace/name). /devices is the machine's /dev/bosh.

# shellcheck disable=SC2034 # not every attachment has a node
node=$root/devices/$DISK
lock=$root/devices/.$DISK.lock

# A disk that is a volume of the machine's own Pod is not waited for.
end() { exit 0; }

# outlast has the kernel end other programs before this one when the node's memory is used up, as the kubelet has it for a
# guaranteed Pod. An attachment that is killed while its Pod is being deleted is not started again, and its volume is taken
# away under the VM's filesystem. A container without CAP_SYS_RESOURCE stays as the kubelet has started it.
outlast() { { echo -997 >"$root/proc/self/oom_score_adj"; } 2>/dev/null || true; }

# attach BRING LEAVE: a whole life. An attachment that is told to end while it brings its disk finishes that
# first. See take_lock.
attach() {
  ending=no
  trap 'ending=yes' "${end_signals[@]}"
  "$1"
  # shellcheck disable=SC2064 # the function that is meant now
  trap "ending=yes; $2" "${end_signals[@]}"
  [[ $ending == no ]] || "$2"
  outlast
  take_lock "$lock"
  # Bash gives up a trap that runs while it reads, as in a pause, when the time of that is over: on a busy node before
  # the trap is done. So it is begun again.
  while [[ $ending == no ]]; do pause 1; done
  "$2"
}

# await_published COMMAND...: waits until the command finds the disk where the VM does. A disk that is not there was released by an
# earlier try, if the attachment holds it: its lock is taken after the disk is published. Otherwise, as right after the
# node's boot, the VM may get the disk in the next moment, and nothing is known: status 3.
await_published() {
  local tries=0
  until "$@"; do
    if held "$lock" && ! "$@"; then exit 0; fi
    ((tries++ < 15)) || { echo "disk $DISK is not held by its attachment" >&2; exit 3; }
    pause 0.2
  done
}
