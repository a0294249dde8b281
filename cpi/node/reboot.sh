# Restarts a VM: makes its init program reboot, and kills the init program if that takes too long.
#
# Because it is privileged on the node, it only sends signals to the VM's processes, and runs none of the VM's programs.
#
# Environment: VM (NAMESPACE/NAME), CONTAINER (the ID of the container to restart).
. lib/shell.sh
. lib/pause.sh
. lib/signals.sh
. lib/processes.sh
. lib/shutdown.sh

# reboot_timeout is how long systemd may take to exit, in tenths of a second.
reboot_timeout=${REBOOT_TIMEOUT:-300}

# find_init_process prints the process that is PID 1 in the VM's PID namespace. A VM process can be PID 1 of a nested namespace, too; such
# a process has more entries in NSpid.
find_init_process() {
  local processes process ids depth id found="" least
  processes=$(vm_processes "$VM") || exit $?
  for process in $processes; do
    ids=$(awk '/^NSpid:/ { print NF, $NF }' "$root/proc/$process/status" 2>/dev/null) || exit_if_killed $? || continue
    read -r depth id <<<"$ids"
    if ((id == 1)) && [[ -z $found || $depth -lt $least ]]; then
      found=$process least=$depth
    fi
  done
  echo "$found"
}

# reboot_systemd asks systemd to reboot, and waits until it exits. It fails after reboot_timeout.
reboot_systemd() {
  local tenth
  kill -s RTMIN+5 "$init" # systemd(1): reboot.target
  for ((tenth = 0; tenth < reboot_timeout; tenth++)); do
    [[ -d $root/proc/$init ]] || return 0
    pause 0.1
  done
  return 1
}

# shut_down stops services and jobs, as runit does before a halt; runsvdir alone does not. After SIGTERM, runsv stops its service and exits.
# runsvdir would restart runsv, so it is suspended meanwhile. If this program is interrupted, runsvdir continues and restarts the services.
shut_down() {
  trap 'kill -s CONT "$init"' EXIT
  trap 'exit 1' "${stop_signals[@]}"
  kill -s STOP "$init"
  terminate supervisor
  wait_exited service
  stop_jobs
  trap - EXIT
}

init=$(find_init_process)
[[ -n $init ]] || fail "the init program of VM $VM does not run on this node [vm-not-running]"
# The request may be old, for example because the node did not respond.
grep -qF "$CONTAINER" "$root/proc/$init/cgroup" || exit_if_killed $? || { echo "VM $VM already restarted after the request" >&2; exit 0; }
name=$(<"$root/proc/$init/comm")
case $name in
  systemd | init) ! reboot_systemd || exit 0 ;;
  bash) ;; # vm-start.sh, which has no jobs yet
  *) shut_down ;;
esac
kill -s KILL "$init"
