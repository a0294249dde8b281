# Restarts one machine: asks its init program to reboot, and kills it when that takes too long.
#
# Environment: VM (namespace/name), CONTAINER (the id of the container that is to be restarted).
set -euo pipefail

# The machine's init: PID 1 of a PID namespace, with the machine's own folder of device nodes mounted. A
# process in the machine may have made a PID namespace within, and be PID 1 there.
find_init() {
  local process depth number found="" least
  for process in /proc/[0-9]*; do
    grep -qs "/$VM /dev/bosh " "$process/mountinfo" || continue
    read -r depth number < <(awk '/^NSpid:/ { print NF, $NF }' "$process/status" 2>/dev/null) || continue
    if ((number == 1)) && [[ -z $found || $depth -lt $least ]]; then
      found=${process#/proc/} least=$depth
    fi
  done
  echo "$found"
}

# others: the machine's processes but for its init and those that supervise services.
others() {
  local process
  for process in /proc/[0-9]*; do
    if [[ ${process#/proc/} != "$init" && $(readlink "$process/ns/pid" 2>/dev/null) == "$namespace" ]] &&
      ! grep -qsE '^(runsv|svlogd)$' "$process/comm" && [[ -n $(tr -d '\0' <"$process/cmdline" 2>/dev/null) ]]; then
      echo "${process#/proc/}"
    fi
  done
}

# end_services does what runit does before a machine's halt, and runsvdir alone does not: services, and
# then the jobs that monit has started, are told to end and given the time.
end_services() {
  local each tenth namespace
  namespace=$(readlink "/proc/$init/ns/pid")
  # shellcheck disable=SC2016
  chroot "/proc/$init/root" /bin/sh -c 'sv -w 10 force-stop /etc/service/*' >/dev/null 2>&1 || true
  for each in $(others); do
    kill -s TERM "$each" 2>/dev/null || true
  done
  for ((tenth = 0; tenth < 100; tenth++)); do
    [[ -n $(others) ]] || return 0
    read -r -t 0.1 <> <(:) || true
  done
}

init=$(find_init)
[[ -n $init ]] || { echo "the machine's init program does not run on this node" >&2; exit 1; }
# The request may be old: its node did not answer, for example.
grep -qF "$CONTAINER" "/proc/$init/cgroup" || { echo "the machine has restarted since the request" >&2; exit 0; }
case $(cat "/proc/$init/comm") in
  systemd | init) kill -s RTMIN+5 "$init" ;; # systemd(1): reboot.target
  bash) kill -s KILL "$init" ;;              # the start script, which has nothing to end
  *)
    end_services
    kill -s HUP "$init" ;; # runsvdir(8)
esac
for ((tenth = 0; tenth < 300; tenth++)); do
  [[ -d /proc/$init ]] || exit 0
  read -r -t 0.1 <> <(:) || true
done
kill -s KILL "$init"
