# Free space for the next start of a VM. Without it, neither this script nor the agent can start on a full disk, and without an agent,
# nobody can log in to remove files.

reserve_mib=8
reserve_inodes=128

# disk_full [FACTOR] succeeds if the ephemeral disk has less free space, or fewer free inodes, than FACTOR times the reserve (default: 1).
disk_full() {
  local found blocks size inodes free_inodes factor=${1:-1}
  found=$(stat --file-system --format='%a %S %c %d' "$ephemeral_disk") || exit $?
  read -r blocks size inodes free_inodes <<<"$found"
  # A filesystem without a fixed number of inodes reports 0.
  ((blocks * size >> 20 < factor * reserve_mib || inodes > 0 && free_inodes < factor * reserve_inodes))
}

# free_reserve removes the reserve if the disk is full.
free_reserve() {
  disk_full || return 0
  log "the VM's ephemeral disk is full: remove files from /var/vcap, or recreate the VM with a larger one"
  rm -rf "$ephemeral_disk/reserve"
}

# create_reserve reserves space for the next start, unless that would fill the disk or the filesystem cannot allocate space.
create_reserve() {
  [[ ! -d $ephemeral_disk/reserve ]] && ! disk_full 2 || return 0
  rm -rf "$ephemeral_disk/reserve.new"
  mkdir "$ephemeral_disk/reserve.new"
  if fallocate --length "${reserve_mib}MiB" "$ephemeral_disk/reserve.new/space" 2>/dev/null &&
    (cd "$ephemeral_disk/reserve.new" && seq -f inode-%g "$reserve_inodes" | xargs touch); then
    mv -T "$ephemeral_disk/reserve.new" "$ephemeral_disk/reserve"
  else
    rm -rf "$ephemeral_disk/reserve.new"
  fi
}
