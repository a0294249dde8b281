# A machine's cgroups: those of its container, which /sys/fs/cgroup shows from its top, and none of the node's beside them.
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
    $(declare -f say is_systemd take_cgroups show_own hand_out move_processes missing_controllers)
    take_cgroups \"\$0\"
    exec \"\$0\"" "$1"
}

# take_cgroups INIT: what the init program is to find. systemd does the rest, where the tree is its own and writable.
take_cgroups() {
  local trouble=""
  if [[ $(stat --file-system --format %T "$cgroups" 2>/dev/null) != cgroup2fs ]]; then
    ! is_systemd "$1" || [[ -w $cgroups ]] || mount -o remount,bind,rw "$cgroups"
    return
  fi
  if ! trouble=$(show_own 2>&1); then
    say "/sys/fs/cgroup is as its container was given it: $trouble"
  elif ! is_systemd "$1"; then
    trouble=$(hand_out 2>&1) || say "containers in it have no limits of their own: $trouble"
  fi
}

# show_own mounts the tree from its top in this namespace. It comes from aside: the kernel refuses to mount it where it
# is mounted already, and what was mounted first must not come to light when the other is unmounted.
show_own() {
  local new
  new=$(mktemp -d)
  mount -t cgroup2 cgroup2 "$new" || { rmdir "$new"; return 1; }
  umount --lazy "$cgroups" || true
  mount --bind "$new" "$cgroups" || return 1
  umount "$new"
  rmdir "$new"
}

# hand_out lets cgroups below have all controllers, as containers in the machine ask for. A cgroup that does so cannot
# have processes of its own (cgroups(7), "no internal processes"): they are in one below, where a runtime also puts
# what it runs in the container from then on. What it has begun to run before that is in the way for a moment.
hand_out() {
  local tries missing
  mkdir -p "$cgroups/init" || return 1
  for ((tries = 0; tries < 100; tries++)); do
    move_processes
    missing=$(missing_controllers)
    [[ -n $missing ]] || return 0
    [[ -n $(<"$cgroups/cgroup.procs") ]] || break
    sleep 0.1
  done
  echo "its cgroup does not hand out $missing"
  return 1
}

# move_processes: those of the container's cgroup to the one below. A number 0 is of a process outside of its PID namespace.
move_processes() {
  local process all
  mapfile -t all <"$cgroups/cgroup.procs"
  for process in "${all[@]}"; do
    ((process == 0)) || { echo "$process" >"$cgroups/init/cgroup.procs"; } 2>/dev/null || true # it may have ended
  done
}

# missing_controllers: those that the container has, and cannot be had below it, once it has been asked for.
missing_controllers() {
  local controller
  for controller in $(<"$cgroups/cgroup.controllers"); do
    { echo "+$controller" >"$cgroups/cgroup.subtree_control"; } 2>/dev/null || printf '%s ' "$controller"
  done
}
