# Loop devices, behind which an image file is a device.

# find_loop IMAGE: the image's loop device, or nothing. Comparing the backing file's device and inode is
# the only way that does not depend on mount namespaces.
find_loop() {
  local number entry
  for entry in "$root"/sys/block/loop*/loop; do
    [[ ! -e $entry ]] || loop_node "$(basename "$(dirname "$entry")")"
  done
  number=$(stat -c %d "$1")
  losetup --list --noheadings --output NAME,BACK-MAJ:MIN,BACK-INO |
    awk -v device="$(((number >> 8) & 0xfff)):$(((number & 0xff) | ((number >> 12) & 0xfff00)))" -v inode="$(stat -c %i "$1")" \
      '$2 == device && $3 == inode { print $1; exit }'
}

# loop_node NAME: a container's /dev is made once; loop devices that came later have no node in it.
loop_node() {
  is_device "$root/dev/$1" || mknod "$root/dev/$1" b 7 "${1#loop}" 2>/dev/null || is_device "$root/dev/$1"
}

# make_loop IMAGE: a new loop device for the image.
make_loop() {
  local name tries=0
  while ((tries++ < 50)); do
    name=$(losetup --find 2>/dev/null) || {
      [[ -e $root/dev/loop-control ]] || mknod "$root/dev/loop-control" c 10 237
      continue
    }
    loop_node "$(basename "$name")"
    # Another attachment may take the same free device first. Not every filesystem can do direct I/O.
    if losetup "$name" "$1" 2>/dev/null; then
      losetup --direct-io=on "$name" 2>/dev/null || true
      echo "$name"
      return
    fi
    pause 0.1
  done
  fail "disk $DISK: no loop device could be had on this node (is the loop module loaded?)"
}

# free_loop DEVICE: a loop device that outlives its attachment would hold the volume.
free_loop() {
  ! is_loop "$1" || ! exclusively "$1" || losetup --detach "$1"
}
