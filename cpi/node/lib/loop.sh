# Loop devices for image files.

# find_loop IMAGE prints the loop device of the image file, or nothing. It compares device and inode of the backing file, because paths
# depend on the mount namespace. It fails if it cannot read them: a second loop device would seem unused while the VM uses the first.
find_loop() {
  local number inode entry
  for entry in "$root"/sys/block/loop*/loop; do
    entry=${entry%/loop}
    [[ ! -e $entry ]] || ensure_loop_node "${entry##*/}" || return $?
  done
  number=$(stat -c %d "$1") || return $?
  inode=$(stat -c %i "$1") || return $?
  losetup --list --noheadings --output NAME,BACK-MAJ:MIN,BACK-INO |
    awk -v device="$(((number >> 8) & 0xfff)):$(((number & 0xff) | ((number >> 12) & 0xfff00)))" -v inode="$inode" \
      '$2 == device && $3 == inode { print $1 }'
}

# ensure_loop_node NAME creates the node of the loop device if it does not exist. A container's /dev has no nodes for loop devices that were
# created after the container.
ensure_loop_node() {
  is_device "$root/dev/$1" || mknod "$root/dev/$1" b 7 "${1#loop}" 2>/dev/null || is_device "$root/dev/$1"
}

# create_loop IMAGE creates a loop device for the image file, and prints its path.
create_loop() {
  local name tries=0
  while ((tries++ < 50)); do
    name=$(losetup --find 2>/dev/null) || {
      [[ -e $root/dev/loop-control ]] || mknod "$root/dev/loop-control" c 10 237
      continue
    }
    ensure_loop_node "$(basename "$name")"
    # Another attachment may take the free device first. Some filesystems do not support direct I/O.
    if losetup "$name" "$1" 2>/dev/null || exit_if_killed $?; then
      losetup --direct-io=on "$name" 2>/dev/null || true
      echo "$name"
      return
    fi
    pause 0.1
  done
  fail "cannot create a loop device for disk $DISK on this node; check that the kernel module loop is loaded [loop-device-unavailable]"
}

# free_loop DEVICE frees an unused loop device, which would otherwise keep the volume in use.
free_loop() {
  ! is_loop "$1" || ! check_exclusive "$1" || losetup --detach "$1"
}
