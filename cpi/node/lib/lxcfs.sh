# Files in /proc that report the resources of the VM, and not the node's, on nodes with lxcfs (https://linuxcontainers.org/lxcfs/).

lxcfs=$root/bosh/lxcfs/proc
lxcfs_files=(cpuinfo loadavg meminfo stat swaps uptime)
mounted_files=() # of lxcfs_files

# lxcfs_check_period is the time between checks of the files, in seconds.
lxcfs_check_period=${LXCFS_CHECK_PERIOD:-1}

# start_lxcfs_mounts mounts the files, and starts a process that keeps them readable while the VM runs. ps shows its name, lxcfs-mounts,
# and not the whole script.
start_lxcfs_mounts() {
  [[ -d $root/bosh/lxcfs ]] || return 0
  mount_uncovered_proc || true
  mount_lxcfs_files ||
    log "/proc reports the node's resources: lxcfs is not mounted at pods.lxcfs_path on the node, or the container is not allowed to mount"
  /bin/bash -euo pipefail -c "
    $(declare -p root lxcfs lxcfs_files mounted_files lxcfs_check_period pause_fd)
    $(declare -f log pause maintain_lxcfs_mounts has_lxcfs_mounts mount_lxcfs_files unmount_lxcfs_files is_readable)
    maintain_lxcfs_mounts" lxcfs-mounts &
}

# mount_uncovered_proc mounts another procfs, which only root can reach. The kernel lets a process in a new user namespace, for example an
# unprivileged container of Garden, mount procfs only if there is one in which no file is covered. The files of lxcfs cover some in /proc.
mount_uncovered_proc() {
  mkdir -p "$root/bosh/nested/proc"
  chmod 0700 "$root/bosh/nested"
  mount -t proc -o nosuid,nodev,noexec proc "$root/bosh/nested/proc" 2>/dev/null
}

# maintain_lxcfs_mounts unmounts the files when lxcfs stops, because they become unreadable, and mounts them again when lxcfs restarts.
# Programs can work with the node's numbers, but not without any.
maintain_lxcfs_mounts() {
  while pause "$lxcfs_check_period"; do
    if ! has_lxcfs_mounts; then
      mount_lxcfs_files || true
    elif ! is_readable "$root/proc/uptime"; then
      log "lxcfs stopped on the node: /proc reports the node's resources until lxcfs runs again"
      unmount_lxcfs_files
    fi
  done
}

has_lxcfs_mounts() { [[ -n ${mounted_files[*]} ]]; }

# mount_lxcfs_files fails if it cannot mount any file.
mount_lxcfs_files() {
  local file
  for file in "${lxcfs_files[@]}"; do
    if is_readable "$lxcfs/$file" && mount --bind "$lxcfs/$file" "$root/proc/$file" 2>/dev/null; then mounted_files+=("$file"); fi
  done
  has_lxcfs_mounts
}

unmount_lxcfs_files() {
  local file
  for file in "${mounted_files[@]}"; do umount --lazy "$root/proc/$file"; done
  mounted_files=()
}

# is_readable FILE succeeds if a line can be read from the file. It starts no process, because it runs often.
is_readable() { { read -r <"$1"; } 2>/dev/null; }
