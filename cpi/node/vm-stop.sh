# Shuts the VM down before its container is stopped, like a VM before it is powered off: terminates services and jobs, and waits for them.
# It runs in the VM, and leaves the init program to the signal that follows.
#
# $1: for how many seconds the VM keeps serving first, because clients connect until they have heard that the VM is no longer an
# endpoint of its Services.
. lib/shell.sh
. lib/pause.sh
. lib/signals.sh
. lib/shutdown.sh

# Tests set INIT.
init=${INIT:-1}

[[ -z ${1:-} ]] || pause "$1"
case $(<"$root/proc/$init/comm") in
  systemd | init)
    # At the end, systemd sends SIGTERM to all remaining processes, including this program.
    trap 'exit 0' "${stop_signals[@]}"
    kill -s RTMIN+3 "$init" # systemd(1): halt.target
    while [[ -d $root/proc/$init ]]; do pause 0.1; done ;;
  bash) ;; # vm-start.sh, which has no jobs yet
  *)
    # runit does this before a halt; runsvdir alone does not.
    sv -w "$((stop_timeout / 10))" force-stop "$root"/etc/service/* >/dev/null 2>&1 || true
    stop_jobs ;;
esac
