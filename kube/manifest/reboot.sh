# Restarts one machine: asks its init program to reboot, and kills it when that takes too long.
#
# Environment: VM (namespace/name).
set -euo pipefail

# The machine's init: PID 1 of a PID namespace, with the machine's own folder of device nodes mounted.
find_init() {
  local process
  for process in /proc/[0-9]*; do
    grep -qs "/$VM /dev/bosh " "$process/mountinfo" || continue
    if [[ $(awk '/^NSpid:/ { print $NF }' "$process/status" 2>/dev/null) == 1 ]]; then
      echo "${process#/proc/}"
      return
    fi
  done
}

init=$(find_init)
[[ -n $init ]] || { echo "the machine's init program does not run on this node" >&2; exit 1; }
case $(cat "/proc/$init/comm") in
  systemd | init) kill -s RTMIN+5 "$init" ;; # systemd(1): reboot.target
  bash) kill -s KILL "$init" ;;              # the start script, which has nothing to end
  *) kill -s HUP "$init" ;;                  # runsvdir(8): end all services, then itself
esac
for ((tenth = 0; tenth < 300; tenth++)); do
  [[ -d /proc/$init ]] || exit 0
  read -r -t 0.1 <> <(:) || true
done
kill -s KILL "$init"
