# Draining the jobs before a shutdown, as the agent does when the director stops them: https://bosh.io/docs/drain.

# drain_jobs SECONDS runs the drain scripts of all jobs at the same time, and waits until they have drained, but not longer than SECONDS.
# It does nothing if the director has stopped the jobs.
drain_jobs() {
  local deadline=$((SECONDS + $1)) script
  [[ ! -e $root/var/vcap/monit/stopped ]] || return 0
  suspend_monit
  for script in "$root"/var/vcap/jobs/*/bin/drain; do
    [[ ! -x $script ]] || drain_job "$script" "$deadline" &
  done
  wait
}

# suspend_monit suspends monit, which would restart the processes that a drain script stops. The shutdown wakes it up.
suspend_monit() {
  local process processes
  until processes=$(vm_processes_of "service job"); do pause 0.1; done
  for process in $processes; do
    [[ $(<"$root/proc/$process/comm") != monit ]] || kill -s STOP "$process" || true
  done
}

# drain_job SCRIPT DEADLINE runs a drain script until it has drained its job. The script prints the number of seconds to wait. After a
# negative number, it runs again.
drain_job() {
  local change=job_shutdown seconds end
  while ((SECONDS < $2)); do
    seconds=$(timeout "$(($2 - SECONDS))" "$1" "$change" hash_unchanged </dev/null 2>/dev/null) || return 0
    [[ $seconds =~ ^-?[0-9]+$ ]] || return 0
    for ((end = SECONDS + ${seconds#-}; SECONDS < end && SECONDS < $2; )); do pause 0.2; done
    [[ $seconds == -* ]] || return 0
    change=job_check_status
  done
}
