# The filesystem of a disk, and its size.

# discard DEVICE returns the blocks of the device to the storage, if the storage supports that.
discard() { blkdiscard "$1" 2>/dev/null || true; }

# make_filesystem PATH [KIB] creates the filesystem on a device or in an image file, without discarding blocks. KIB is the size of an ext4
# filesystem (default: the whole device).
make_filesystem() {
  case $FILESYSTEM in
    ext4) mkfs.ext4 -q -F -m 1 -E nodiscard,lazy_itable_init=1,lazy_journal_init=1 "$1" ${2:+"$2k"} ;;
    xfs) mkfs.xfs -q -f -K -m uuid="${DISK#disk-}" "$1" ;;
    *) fail "cannot format disk $DISK: unknown filesystem $FILESYSTEM [unknown-filesystem]" ;;
  esac
}

# has_filesystem DEVICE succeeds if the device has a known filesystem. It exits if blkid is killed.
has_filesystem() { blkid -p "$1" >/dev/null 2>&1 || exit_if_killed $?; }

# filesystem_type DEVICE prints the type of the filesystem on the device.
filesystem_type() { blkid -p -o value -s TYPE "$1"; }

# can_grow DEVICE BYTES succeeds if the device is at least 1 MiB larger than its filesystem of BYTES.
can_grow() {
  local size
  size=$(blockdev --getsize64 "$1") || exit $?
  ((size - $2 >= 1048576))
}

# ext4_size DEVICE prints the size of the filesystem in bytes.
ext4_size() {
  dumpe2fs -h "$1" 2>/dev/null | awk -F: '/^Block count/ { c = $2 } /^Block size/ { s = $2 } END { printf "%.0f", c * s }'
}

# xfs_size DEVICE prints the size of the filesystem in bytes.
xfs_size() {
  xfs_db -r -c 'sb 0' -c 'print dblocks blocksize' "$1" | awk '{ p = p ? p * $3 : $3 } END { printf "%.0f", p }'
}

# grow_filesystem DEVICE grows the filesystem to the size of the device. It does not change a mounted filesystem: this attachment restarted
# while the VM is running, and the next attachment grows the filesystem.
grow_filesystem() {
  local size type
  check_exclusive "$1" || exit_if_killed $? || return 0
  ! is_loop "$1" || losetup --set-capacity "$1"
  type=$(filesystem_type "$1") || exit_if_killed $? || return 0
  case $type in
    ext4)
      size=$(ext4_size "$1")
      if can_grow "$1" "$size"; then
        e2fsck -f -p "$1" >&2 || exit_if_killed $? || (($? < 4)) ||
          fail "cannot grow the filesystem of disk $DISK: it has errors that e2fsck does not repair automatically [filesystem-damaged]"
        resize2fs "$1" >&2
      fi ;;
    xfs)
      size=$(xfs_size "$1")
      if can_grow "$1" "$size"; then
        mkdir -p "$root/mnt/grow"
        mount -o nouuid "$1" "$root/mnt/grow"
        xfs_growfs "$root/mnt/grow" >&2
        umount "$root/mnt/grow"
      fi ;;
  esac
}

# set_xfs_uuid DEVICE sets the UUID of an XFS filesystem to the disk's. A disk created from a snapshot has the UUID of its source, and XFS
# does not mount two filesystems with the same UUID. A mount first replays the journal, because the UUID cannot be changed otherwise.
set_xfs_uuid() {
  local type uuid
  type=$(filesystem_type "$1") || exit_if_killed $? || return 0
  [[ $type == xfs ]] || return 0
  uuid=$(blkid -p -o value -s UUID "$1") || exit_if_killed $? || true
  [[ $uuid != "${DISK#disk-}" ]] || return 0
  check_exclusive "$1" || exit_if_killed $? || return 0
  mkdir -p "$root/mnt/replay"
  mount -o nouuid "$1" "$root/mnt/replay"
  umount "$root/mnt/replay"
  xfs_admin -U "${DISK#disk-}" "$1" >&2
}
