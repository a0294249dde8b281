# A machine's cgroups: those of its container and none of the node's.
#
# On cgroup v2 a privileged container is given the node's tree, writable. On v1 it sees its own cgroups alone, but by
# names that they have on the node.

cgroups=$root/sys/fs/cgroup

# become INIT: the init program, in a cgroup namespace whose top is the container's cgroup. Another bash is the first in
# it: what shows cgroups is mounted from inside.
become() {
  local trouble
  if ! trouble=$(unshare --cgroup true 2>&1); then
    say "it has the cgroups that its container was given: $trouble"
    exec "$1"
  fi
  exec unshare --cgroup /bin/bash -euo pipefail -c "
    $(declare -p root cgroups)
    $(declare -f say is_systemd take_cgroups open_up lay_out hand_out limit_as move_processes missing_controllers)
    take_cgroups \"\$0\"
    exec \"\$0\"" "$1"
}

# take_cgroups INIT: what the init program is to find at /sys/fs/cgroup. cgroup v2 is mounted there from aside: the kernel
# refuses to mount it where it is mounted already, the node's must not come to light when this one is unmounted, and
# BOSH's stemcells want one mount of it and no second.
take_cgroups() {
  local trouble new shown
  if [[ $(stat --file-system --format %T "$cgroups" 2>/dev/null) != cgroup2fs ]]; then
    ! is_systemd "$1" || [[ -w $cgroups ]] || mount -o remount,bind,rw "$cgroups"
    open_up
    return
  fi
  new=$(mktemp -d) shown=$new
  if ! trouble=$(mount -t cgroup2 cgroup2 "$new" 2>&1); then
    rmdir "$new"
    say "/sys/fs/cgroup is as its container was given it: $trouble"
    return
  fi
  if ! is_systemd "$1"; then # which does the rest itself
    if trouble=$(lay_out "$new" 2>&1); then shown=$new/machine; else say "containers in it have no limits of their own: $trouble"; fi
  fi
  umount --lazy "$cgroups" || true
  mount --bind "$shown" "$cgroups"
  umount "$new"
  rmdir "$new"
}

# open_up: on v1 a container that is not privileged may only look at its own cgroups. A machine has to divide them: without
# that, the monit of BOSH's stemcells answers no command where the node has network classes.
open_up() {
  local at options trouble
  while read -r _ at _ options _; do
    [[ $root$at == "$cgroups"/* && ,$options, == *,ro,* ]] || continue
    trouble=$(mount -o remount,bind,rw "$root$at" 2>&1) || say "$at stays as its container was given it: $trouble"
  done <"$root/proc/self/mounts"
}

# lay_out TOP makes room for the cgroups of containers in the machine. A cgroup that hands out controllers, as their
# limits need it, cannot have processes of its own (cgroups(7), "no internal processes"): those of the machine are in
# "init", where a runtime also puts what it runs in the container from then on.
#
# /sys/fs/cgroup is to show "machine", in which there is nobody, instead of the top. What makes cgroups takes their
# places from its own, by name: runc beside its own, and the monit of BOSH's stemcells below it, so that runc's would
# come to be within "init", where there are processes. In "machine" the same names lead to places where nobody is.
#
# What looks for its limits there, at the top or by its own cgroup's name, is to find the machine's: they hold anyway.
lay_out() {
  mkdir -p "$1/init" "$1/machine" && hand_out "$1" && hand_out "$1/machine" || return
  mkdir -p "$1/machine/init"
  limit_as "$1" "$1/machine"
  limit_as "$1" "$1/machine/init"
}

# limit_as GROUP OTHER gives the other one the limits of the first.
limit_as() {
  local limit
  for limit in memory.max cpu.max pids.max; do
    [[ ! -e $1/$limit ]] || cat "$1/$limit" >"$2/$limit" || true
  done
}

# hand_out GROUP lets cgroups below it have all of its controllers. What a runtime has begun to run in the container a
# moment ago, as a probe, may be in the way, and ends or is moved.
hand_out() {
  local tries missing
  for ((tries = 0; tries < 100; tries++)); do
    move_processes "$1"
    missing=$(missing_controllers "$1")
    [[ -n $missing ]] || return 0
    [[ -n $(<"$1/cgroup.procs") ]] || break
    sleep 0.1
  done
  echo "its cgroup does not hand out $missing"
  return 1
}

# move_processes GROUP: to "init" below it. A number 0 is of a process outside of this PID namespace.
move_processes() {
  local process all
  mapfile -t all <"$1/cgroup.procs"
  for process in "${all[@]}"; do
    ((process == 0)) || { echo "$process" >"$1/init/cgroup.procs"; } 2>/dev/null || true # it may have ended
  done
}

# missing_controllers GROUP: those that it has, and cannot be had below it, once it has been asked for.
missing_controllers() {
  local controller
  for controller in $(<"$1/cgroup.controllers"); do
    { echo "+$controller" >"$1/cgroup.subtree_control"; } 2>/dev/null || printf '%s ' "$controller"
  done
}
