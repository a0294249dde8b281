# Free space for the next start of a VM. Neither this script nor the agent starts on a full disk, and without an agent nobody
# can log in to remove files.

reserve_mib=8
reserve_inodes=128

# full [TIMES]: succeeds when the volume has less free space than the reserve takes, or so many times that.
full() {
  local blocks size inodes free
  read -r blocks size inodes free < <(stat --file-system --format='%a %S %c %d' "$volume")
  # A filesystem that has no fixed number of inodes counts none.
  ((blocks * size >> 20 < ${1:-1} * reserve_mib || inodes > 0 && free < ${1:-1} * reserve_inodes))
}

# release_reserve gives a start on a full disk the space that was kept for it.
release_reserve() {
  full || return 0
  say "the VM's ephemeral disk is full: remove files from /var/vcap, or recreate the VM with a larger one"
  rm -rf "$volume/reserve"
}

# keep_reserve keeps space for the next start, unless that would fill the disk. A filesystem that cannot allocate it has none.
keep_reserve() {
  [[ ! -d $volume/reserve ]] && ! full 2 || return 0
  rm -rf "$volume/reserve.new"
  mkdir "$volume/reserve.new"
  if fallocate --length "${reserve_mib}MiB" "$volume/reserve.new/space" 2>/dev/null &&
    (cd "$volume/reserve.new" && seq -f inode-%g "$reserve_inodes" | xargs touch); then
    mv -T "$volume/reserve.new" "$volume/reserve"
  else
    rm -rf "$volume/reserve.new"
  fi
}
