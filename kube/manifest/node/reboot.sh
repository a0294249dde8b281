# Restarts one machine: asks its init program to reboot, and kills it when that takes too long.
#
# Environment: VM (namespace/name), CONTAINER (the id of the container that is to be restarted).
. lib/shell.sh
. lib/pause.sh
. lib/processes.sh

# How long services, and then the init program, are given to end: in tenths of a second.
services_time=${SERVICES_TIME:-100}
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

# others: the processes of init's PID namespace, but for itself and those that supervise services.
others() {
  local process
  for process in "$root"/proc/[0-9]*; do
    if [[ ${process##*/} != "$init" && $(readlink "$process/ns/pid" 2>/dev/null) == "$namespace" ]] &&
      ! grep -qsE '^(runsv|svlogd)$' "$process/comm" && [[ -n $(tr -d '\0' 2>/dev/null <"$process/cmdline") ]]; then
      echo "${process##*/}"
    fi
  done
}

# end_services does what runit does before a machine's halt, and runsvdir alone does not: services, and
# then the jobs that monit has started, are told to end and given the time.
end_services() {
  local each tenth namespace
  namespace=$(readlink "$root/proc/$init/ns/pid")
  # shellcheck disable=SC2016
  chroot "$root/proc/$init/root" /bin/sh -c 'sv -w 10 force-stop /etc/service/*' >/dev/null 2>&1 || true
  for each in $(others); do
    kill -s TERM "$each" 2>/dev/null || true
  done
  for ((tenth = 0; tenth < services_time; tenth++)); do
    [[ -n $(others) ]] || return 0
    pause 0.1
  done
}

init=$(find_init)
[[ -n $init ]] || fail "the machine's init program does not run on this node"
# The request may be old: its node did not answer, for example.
grep -qF "$CONTAINER" "$root/proc/$init/cgroup" || { echo "the machine has restarted since the request" >&2; exit 0; }
case $(cat "$root/proc/$init/comm") in
  systemd | init) kill -s RTMIN+5 "$init" ;; # systemd(1): reboot.target
  bash) kill -s KILL "$init" ;;              # the start script, which has nothing to end
  *)
    end_services
    kill -s HUP "$init" ;; # runsvdir(8)
esac
for ((tenth = 0; tenth < init_time; tenth++)); do
  [[ -d $root/proc/$init ]] || exit 0
  pause 0.1
done
kill -s KILL "$init"
