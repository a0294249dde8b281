# The VM's cgroups: the VM sees the cgroups of its container, and not the node's.
#
# On cgroup v2, a privileged container can see and write the node's whole tree. On cgroup v1, it sees only its own cgroups, but with their
# names on the node.

cgroups=$root/sys/fs/cgroup

# exec_init INIT replaces this process by the init program, in a cgroup namespace with the container's cgroup as its root. First, another
# bash in the namespace mounts the cgroup filesystem, which then shows only the cgroups of the namespace.
exec_init() {
  local error
  if ! { error=$(unshare --cgroup true 2>&1) || exit_if_killed $?; }; then
    log "cannot create a cgroup namespace, keeping the container's cgroups: $error"
    exec "$1"
  fi
  exec unshare --cgroup /bin/bash -euo pipefail -c "
    $(declare -p root cgroups)
    $(declare -f exit_if_killed log is_systemd mount_cgroups remount_cgroups_writable create_vm_cgroup delegate_controllers copy_limits)
    $(declare -f move_processes enable_controllers)
    mount_cgroups \"\$0\"
    exec \"\$0\"" "$1"
}

# mount_cgroups INIT mounts the cgroups for the init program at /sys/fs/cgroup. It mounts cgroup v2 at another path first, because the
# kernel does not mount it twice at the same path. It replaces the container's mount, because BOSH's stemcells expect exactly one mount, and
# the node's tree must not become visible if that mount is unmounted.
mount_cgroups() {
  local filesystem error new visible
  filesystem=$(stat --file-system --format %T "$cgroups" 2>/dev/null) || exit_if_killed $? || true
  if [[ $filesystem != cgroup2fs ]]; then
    ! is_systemd "$1" || [[ -w $cgroups ]] || mount -o remount,bind,rw "$cgroups"
    remount_cgroups_writable
    return
  fi
  new=$(mktemp -d) visible=$new
  if ! { error=$(mount -t cgroup2 cgroup2 "$new" 2>&1) || exit_if_killed $?; }; then
    rmdir "$new"
    log "cannot mount cgroup v2, keeping the container's /sys/fs/cgroup: $error"
    return
  fi
  if ! is_systemd "$1"; then # systemd does this itself
    if error=$(create_vm_cgroup "$new" 2>&1) || exit_if_killed $?; then
      visible=$new/vm
    else
      log "containers in the VM cannot have their own limits: $error"
    fi
  fi
  umount --lazy "$cgroups" || exit_if_killed $? || true
  mount --bind "$visible" "$cgroups"
  umount "$new"
  rmdir "$new"
}

# remount_cgroups_writable makes cgroup v1, which is read-only in an unprivileged container, writable. The VM needs to create cgroups:
# otherwise, the monit of BOSH's stemcells does not run any command on nodes with the controller net_cls.
remount_cgroups_writable() {
  local path options error
  while read -r _ path _ options _; do
    [[ $root$path == "$cgroups"/* && ,$options, == *,ro,* ]] || continue
    error=$(mount -o remount,bind,rw "$root$path" 2>&1) || exit_if_killed $? || log "cannot make $path writable: $error"
  done <"$root/proc/self/mounts"
}

# create_vm_cgroup ROOT creates the cgroups in which programs of the VM create containers. Limits require that a cgroup delegates its
# controllers. Such a cgroup cannot contain processes (cgroups(7), "no internal processes"). The VM's processes are therefore in the cgroup
# "init". The container runtime adds later processes of the container there, too.
#
# /sys/fs/cgroup shows the cgroup "vm", which has no processes, instead of the root. Programs derive the names of new cgroups from the name
# of their own cgroup: runc creates them next to it, and the monit of BOSH's stemcells below it. In the root, they would be in "init", which
# has processes. In "vm", the same names are of cgroups without processes.
#
# Programs that read their limits in the root, or in the cgroup with their name, find the VM's limits, which apply anyway.
create_vm_cgroup() {
  mkdir -p "$1/init" "$1/vm" && delegate_controllers "$1" && delegate_controllers "$1/vm" || return
  mkdir -p "$1/vm/init"
  copy_limits "$1" "$1/vm"
  copy_limits "$1" "$1/vm/init"
}

# copy_limits FROM TO copies the limits of the cgroup FROM to the cgroup TO.
copy_limits() {
  local limit
  for limit in memory.max cpu.max pids.max; do
    [[ ! -e $1/$limit ]] || cat "$1/$limit" >"$2/$limit" || true
  done
}

# delegate_controllers CGROUP enables all controllers of the cgroup for its children. It retries, because a new process of the container,
# such as a probe, prevents that until it exits or is moved.
delegate_controllers() {
  local tries failed
  for ((tries = 0; tries < 100; tries++)); do
    move_processes "$1"
    failed=$(enable_controllers "$1")
    [[ -n $failed ]] || return 0
    [[ -n $(<"$1/cgroup.procs") ]] || break
    sleep 0.1
  done
  echo "cannot delegate these controllers of the VM's cgroup: $failed"
  return 1
}

# move_processes CGROUP moves the processes of the cgroup to its child "init". Process ID 0 is a process outside of this PID namespace.
move_processes() {
  local process processes
  mapfile -t processes <"$1/cgroup.procs"
  for process in "${processes[@]}"; do
    ((process == 0)) || { echo "$process" >"$1/init/cgroup.procs"; } 2>/dev/null || true # fails if the process exited
  done
}

# enable_controllers CGROUP enables the controllers of the cgroup for its children, and prints those that it cannot enable.
enable_controllers() {
  local controller
  for controller in $(<"$1/cgroup.controllers"); do
    { echo "+$controller" >"$1/cgroup.subtree_control"; } 2>/dev/null || printf '%s ' "$controller"
  done
}
