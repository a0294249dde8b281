# Restarts one machine: asks its init program to reboot, and kills it when that takes too long.
#
# What this does to the machine are signals. It could do anything on the node, and so runs nothing that is the
# machine's own.
#
# Environment: VM (namespace/name), CONTAINER (the id of the container that is to be restarted).
. lib/shell.sh
. lib/pause.sh
. lib/signals.sh
. lib/processes.sh
. lib/shutdown.sh

# How long systemd is given to end: in tenths of a second.
init_time=${INIT_TIME:-300}

# find_init: PID 1 of the machine's PID namespace. A process in the machine may have made one within, and be
# PID 1 there.
find_init() {
  local process depth number found="" least
  while read -r process; do
    read -r depth number < <(awk '/^NSpid:/ { print NF, $NF }' "$root/proc/$process/status" 2>/dev/null) || continue
    if ((number == 1)) && [[ -z $found || $depth -lt $least ]]; then
      found=$process least=$depth
    fi
  done < <(machine_processes "$VM")
  echo "$found"
}

# reboot_systemd fails when that takes too long.
reboot_systemd() {
  local tenth
  kill -s RTMIN+5 "$init" # systemd(1): reboot.target
  for ((tenth = 0; tenth < init_time; tenth++)); do
    [[ -d $root/proc/$init ]] || return 0
    pause 0.1
  done
  return 1
}

# shut_down does what runit does before a machine's halt, and runsvdir alone does not. A runsv that is told to end
# ends its service first; runsvdir would start it again, and is held until there is nothing left to start. Where this
# is cut short it goes on, and the machine is up again.
shut_down() {
  trap 'kill -s CONT "$init"' EXIT
  trap 'exit 1' "${end_signals[@]}"
  kill -s STOP "$init"
  tell_to_end supervisor
  await_end service
  end_jobs
  trap - EXIT
}

init=$(find_init)
[[ -n $init ]] || fail "the machine's init program does not run on this node"
# The request may be old: its node did not answer, for example.
grep -qF "$CONTAINER" "$root/proc/$init/cgroup" || { echo "the machine has restarted since the request" >&2; exit 0; }
case $(cat "$root/proc/$init/comm") in
  systemd | init) ! reboot_systemd || exit 0 ;;
  bash) ;; # the start script, which has nothing to end
  *) shut_down ;;
esac
kill -s KILL "$init"
