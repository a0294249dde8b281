# The behavior of the kernel when the VM's memory is used up.

# disable_group_kill makes the kernel kill one process of the VM, as on a VM with its own kernel, so that monit restarts the job. On cgroup
# v2, the kubelet sets memory.oom.group unless singleProcessOOMKill is set, and the kernel then kills the whole container.
disable_group_kill() {
  local cgroup file
  cgroup=$(awk -F: '$1 == 0 { print $3 }' "$root/proc/self/cgroup") || exit_if_killed $? || return 0 # a sandbox may not have this file
  file=$root/sys/fs/cgroup$cgroup/memory.oom.group
  [[ -e $file && $(<"$file") == 1 ]] || return 0
  { echo 0 >"$file"; } 2>/dev/null ||
    log "the whole VM restarts when its memory is used up: cannot write memory.oom.group of its cgroup"
}
