# The life cycle of an attachment: it publishes its disk in the VM, waits for a signal to stop, and unpublishes the disk.
#
# Environment: DISK (the CID), VM (NAMESPACE/NAME). /devices is the VM's /dev/bosh.

# node is the path of the disk's device node.
# shellcheck disable=SC2034 # not all programs use it
node=$root/devices/$DISK
lock=$root/devices/.$DISK.lock

# lower_oom_score makes the kernel kill other programs first when the node's memory is used up. It sets the score of guaranteed Pods. If an
# attachment is killed while its Pod is being deleted, the kubelet does not restart it, and unmaps the volume although the VM uses its
# filesystem. Without CAP_SYS_RESOURCE, the score stays as set by the kubelet.
lower_oom_score() { { echo -997 >"$root/proc/self/oom_score_adj"; } 2>/dev/null || true; }

# run_attachment PUBLISH UNPUBLISH calls the function PUBLISH, takes the lock, waits for a signal to stop, and calls UNPUBLISH, which returns
# when the disk is free. A signal during PUBLISH takes effect after PUBLISH.
#
# The trap starts no processes, and no other trap unpublishes: after a signal interrupted `read -t`, as in a pause, and it times out, bash aborts
# the trap, and crashes in a subshell of the trap.
run_attachment() {
  stopping=no
  exec {stop_fd}<> <(:)
  trap 'stopping=yes; exec {stop_fd}>&-' "${stop_signals[@]}"
  "$1"
  if [[ $stopping == no ]]; then
    lower_oom_score
    take_lock "$lock"
    remove_vm_directories 2>/dev/null || true
    wait_for_stop
  fi
  "$2"
}

# wait_for_stop waits for a signal to stop. Its child process waits for the end of a pipe, which comes after the signal, and if this process
# is killed: a process that remains would keep the volume in use. Unlike read, the command wait loses no signal.
wait_for_stop() {
  while [[ $stopping == no ]]; do
    cat 2>/dev/null <"/proc/self/fd/$stop_fd" {stop_fd}>&- 9>&- &
    wait $! || [[ $stopping == yes ]] || pause 1 # without memory, start it again
  done
}

# remove_vm_directories removes the empty directories of VMs that left this node. The kubelet keeps a log directory for each Pod from before
# its containers start until the Pod is gone. If it has none for this VM, it keeps them elsewhere.
remove_vm_directories() {
  local node_root=$root/proc/1/root directories directory pods vm
  directories=$(find "$node_root/run/bosh-kubernetes-cpi" -mindepth 2 -maxdepth 2 -type d -empty -mmin +60) || return 0
  pods=$'\n'$(ls "$node_root/var/log/pods") || return 0
  [[ $pods == *$'\n'"${VM/\//_}_"* ]] || return 0
  for directory in $directories; do
    vm=${directory#"$node_root/run/bosh-kubernetes-cpi/"}
    [[ $pods == *$'\n'"${vm/\//_}_"* ]] || rmdir "$directory"
  done
}

# wait_published waits until the attachment publishes the disk. If there is no device node although the attachment holds its lock, an earlier
# exclusivity check removed the node, because the attachment takes the lock after it publishes the disk: wait_published exits with
# status 0. It exits with status 3 if the attachment may be about to publish the disk, for example after a reboot of the node.
wait_published() {
  local tries=0
  until is_device "$node"; do
    ! lock_held "$lock" || is_device "$node" || exit 0
    ((tries++ < 15)) || { echo "the attachment of disk $DISK has not published it yet [disk-not-published]" >&2; exit 3; }
    pause 0.2
  done
}
