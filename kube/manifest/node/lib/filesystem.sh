# A disk's filesystem, and its size.

# discard DEVICE: gives its blocks back to the storage, where that takes them.
discard() { blkdiscard "$1" 2>/dev/null || true; }

# make_filesystem DEVICE [KIB], or image file. It discards nothing. ext4 leaves alone what is behind KIB.
make_filesystem() {
  case $FILESYSTEM in
    ext4) mkfs.ext4 -q -F -m 1 -E nodiscard,lazy_itable_init=1,lazy_journal_init=1 "$1" ${2:+"$2k"} ;;
    xfs) mkfs.xfs -q -f -K -m uuid="${DISK#disk-}" "$1" ;;
    *) fail "disk $DISK: filesystem $FILESYSTEM is not known" ;;
  esac
}

# filesystem DEVICE: the type of the filesystem on it.
filesystem() { blkid -p -o value -s TYPE "$1"; }

# room_to_grow DEVICE BYTES: succeeds when the device has at least 1 MiB more than its filesystem of BYTES.
room_to_grow() { (($(blockdev --getsize64 "$1") - $2 >= 1048576)); }

ext4_size() {
  dumpe2fs -h "$1" 2>/dev/null | awk -F: '/^Block count/ { c = $2 } /^Block size/ { s = $2 } END { printf "%.0f", c * s }'
}

xfs_size() {
  xfs_db -r -c 'sb 0' -c 'print dblocks blocksize' "$1" | awk '{ p = p ? p * $3 : $3 } END { printf "%.0f", p }'
}

# grow DEVICE: the filesystem, to its device. One that is mounted is left as it is: its machine restarted
# nothing, and the next attachment grows it.
grow() {
  exclusively "$1" || return 0
  ! is_loop "$1" || losetup --set-capacity "$1"
  case $(filesystem "$1") in
    ext4)
      if room_to_grow "$1" "$(ext4_size "$1")"; then
        e2fsck -f -p "$1" >&2 || (($? < 4)) || fail "disk $DISK: its filesystem has errors that e2fsck does not repair by itself"
        resize2fs "$1" >&2
      fi ;;
    xfs)
      if room_to_grow "$1" "$(xfs_size "$1")"; then
        mkdir -p "$root/mnt/grow"
        mount -o nouuid "$1" "$root/mnt/grow"
        xfs_growfs "$root/mnt/grow" >&2
        umount "$root/mnt/grow"
      fi ;;
  esac
}

# distinguish DEVICE: XFS does not mount two filesystems with the same UUID, and a disk that was made from
# a snapshot has that of its source. Only one whose journal is played back can be given another.
distinguish() {
  [[ $(filesystem "$1") == xfs && $(blkid -p -o value -s UUID "$1") != "${DISK#disk-}" ]] || return 0
  exclusively "$1" || return 0
  mkdir -p "$root/mnt/play-back"
  mount -o nouuid "$1" "$root/mnt/play-back"
  umount "$root/mnt/play-back"
  xfs_admin -U "${DISK#disk-}" "$1" >&2
}
