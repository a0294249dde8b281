# Shuts a machine down before its container is told to end, as a machine is before its power goes: services and jobs
# are told to end and given the time. It runs in the machine; init is left to the signal that follows.
#
# $1: for how many seconds the machine serves before that, since clients come until they have heard that it is none of its
# Services' endpoints any more.
. lib/shell.sh
. lib/pause.sh
. lib/signals.sh
. lib/shutdown.sh

# Tests have another.
init=${INIT:-1}

[[ -z ${1:-} ]] || pause "$1"
case $(<"$root/proc/$init/comm") in
  systemd | init)
    # At the very end systemd tells what is left to end, this program too.
    trap 'exit 0' "${end_signals[@]}"
    kill -s RTMIN+3 "$init" # systemd(1): halt.target
    while [[ -d $root/proc/$init ]]; do pause 0.1; done ;;
  bash) ;; # the start script, which has nothing to end
  *)
    # What runit does before a machine's halt, and runsvdir alone does not.
    sv -w "$((time_to_end / 10))" force-stop "$root"/etc/service/* >/dev/null 2>&1 || true
    end_jobs ;;
esac
