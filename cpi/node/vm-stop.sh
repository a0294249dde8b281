# Shuts the VM down before its container is stopped: terminates services and jobs, and waits until they exit. It runs in the VM. It does not
# terminate the init program, which gets a signal afterwards.
#
# $1: the number of seconds for which the VM keeps serving first. Clients may connect until they learn that the VM is no longer an endpoint
# of its Services.
# $2: the number of seconds for the drain scripts of the jobs, which then run (default: they do not run)
. lib/shell.sh
. lib/pause.sh
. lib/signals.sh
. lib/shutdown.sh
. lib/drain.sh

# Tests set INIT.
init=${INIT:-1}

[[ -z ${1:-} ]] || pause "$1"
program=$(<"$root/proc/$init/comm")
[[ -z ${2:-} || $program == bash ]] || drain_jobs "$2"
case $program in
  systemd | init)
    # Finally, systemd sends SIGTERM to all remaining processes, including this program.
    trap 'exit 0' "${stop_signals[@]}"
    kill -s RTMIN+3 "$init" # systemd(1): halt.target
    while [[ -d $root/proc/$init ]]; do pause 0.1; done ;;
  bash) ;; # vm-start.sh, which has no jobs yet
  *)
    # As runit does before a halt; runsvdir alone does not.
    sv -w "$((stop_timeout / 10))" force-stop "$root"/etc/service/* >/dev/null 2>&1 || true
    stop_jobs ;;
esac
