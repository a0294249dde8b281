# Who ends when a machine's memory is used up.

# let_one_end: on cgroup v2 the kubelet has the kernel end a container as a whole then (memory.oom.group), unless its
# node is configured otherwise. On a machine one process ends, and monit starts its job again.
let_one_end() {
  local own group
  own=$(awk -F: '$1 == 0 { print $3 }' "$root/proc/self/cgroup") || return 0 # a sandbox may have none
  group=$root/sys/fs/cgroup$own/memory.oom.group
  [[ -e $group && $(<"$group") == 1 ]] || return 0
  { echo 0 >"$group"; } 2>/dev/null ||
    say "its cgroup cannot be written: when its memory is used up, the whole machine restarts (memory.oom.group)"
}
