# Makes one disk appear as a device in one machine, holds it there, and lets it go.
#
#   prepare   make the filesystem on a blank disk, grow one that has room, publish the device node
#   hold      the same again (a restart finds everything done), then wait; on SIGTERM leave as soon
#             as nothing uses the device
#   release   prove that nothing uses the device, and take its node away in the same moment
#
# Environment: DISK (the CID), SIZE_MIB, FILESYSTEM, VM (namespace/name).
# A Block claim is the device /dev/volume; a Filesystem claim is mounted at /volume and carries the
# disk as an image file behind a loop device. /devices is the machine's /dev/bosh.
set -euo pipefail

node=/devices/$DISK
lock=/devices/.$DISK.lock
image=/volume/disk.img

fail() { echo "$*" >&2; exit 1; }

# exclusively DEVICE [PATH]: opens the device as a mount would. That fails while any filesystem,
# mounted in whatever namespace, is on it. PATH is removed while the device is held.
exclusively() {
  perl -e 'use Fcntl; sysopen(my $f, $ARGV[0], O_RDWR | O_EXCL) or exit 1; !$ARGV[1] or unlink($ARGV[1]) or exit 1' "$@"
}

# users DEVICE: who has it mounted, one process per mount namespace; or holds it open.
users() {
  local numbers process seen=" " namespace mount
  numbers=$((0x$(stat -Lc %t "$1"))):$((0x$(stat -Lc %T "$1")))
  for process in /proc/[0-9]*; do
    mount=$(awk -v n="$numbers" '$3 == n { print $5; exit }' "$process/mountinfo" 2>/dev/null) || continue
    [[ -n $mount ]] || continue
    namespace=$(readlink "$process/ns/mnt" 2>/dev/null) || continue
    [[ $seen != *" $namespace "* ]] || continue
    seen+="$namespace "
    echo "process ${process#/proc/} ($(cat "$process/comm" 2>/dev/null)) has it mounted at $mount"
    within "$process" "$numbers" "$mount"
  done
}

# within PROCESS MAJOR:MINOR MOUNT: which processes of its mount namespace work below the mount.
within() {
  local namespace process link
  namespace=$(readlink "$1/ns/mnt" 2>/dev/null) || return 0
  for process in /proc/[0-9]*; do
    [[ $(readlink "$process/ns/mnt" 2>/dev/null) == "$namespace" ]] || continue
    for link in "$process/cwd" "$process/root" "$process"/fd/*; do
      if [[ $(readlink "$link" 2>/dev/null) == "$3"/* || $(readlink "$link" 2>/dev/null) == "$3" ]]; then
        echo "process ${process#/proc/} ($(cat "$process/comm" 2>/dev/null)) uses $(readlink "$link")"
        break
      fi
    done
  done
}

# used_by_others DEVICE: succeeds when the device is in use, and not by this VM alone. The VM's
# processes are known by the mount of its own device folder.
used_by_others() {
  ! exclusively "$1" || return 1
  local numbers process mounted=no
  numbers=$((0x$(stat -Lc %t "$1"))):$((0x$(stat -Lc %T "$1")))
  for process in /proc/[0-9]*; do
    grep -qs "^[^ ]* [^ ]* $numbers " "$process/mountinfo" || continue
    mounted=yes
    grep -qs "/$VM /dev/bosh " "$process/mountinfo" || return 0
  done
  [[ $mounted == no ]]
}

# The loop device of the image, or nothing. Asking the kernel for the backing file's device and inode
# is the only way that does not depend on mount namespaces.
find_loop() {
  local want entry name
  want=$(stat -c '%d:%i' "$image")
  for entry in /sys/block/loop*/loop; do
    [[ -e $entry ]] || continue
    name=$(basename "$(dirname "$entry")")
    loop_node "$name"
    if [[ $(backing "/dev/$name") == "$want" ]]; then
      echo "/dev/$name"
      return
    fi
  done
}

backing() {
  local number inode major minor
  read -r number inode < <(losetup --list --noheadings --raw --output BACK-MAJ:MIN,BACK-INO "$1" 2>/dev/null) || return 0
  major=${number%%:*} minor=${number##*:}
  echo "$(((minor & 0xff) | (major << 8) | ((minor & ~0xff) << 12))):$inode"
}

# A container's /dev is made once; loop devices that came later have no node in it.
loop_node() {
  [[ -b /dev/$1 ]] || mknod "/dev/$1" b 7 "${1#loop}" 2>/dev/null || [[ -b /dev/$1 ]]
}

make_loop() {
  local name tries=0
  while ((tries++ < 50)); do
    name=$(losetup --find 2>/dev/null) || { [[ -c /dev/loop-control ]] || mknod /dev/loop-control c 10 237; continue; }
    loop_node "$(basename "$name")"
    # Another attachment may take the same free device first.
    if losetup --direct-io=on "$name" "$image" 2>/dev/null || losetup "$name" "$image" 2>/dev/null; then
      echo "$name"
      return
    fi
    read -r -t 0.1 <> <(:) || true
  done
  fail "disk $DISK: no loop device could be had on this node (is the loop module loaded?)"
}

make_filesystem() {
  case $FILESYSTEM in
    ext4) mkfs.ext4 -q -F -m 1 -E lazy_itable_init=1,lazy_journal_init=1 "$1" ;;
    xfs) mkfs.xfs -q -f "$1" ;;
    *) fail "disk $DISK: filesystem $FILESYSTEM is not known" ;;
  esac
}

# The image is formatted under another name, so that one that exists is whole.
make_image() {
  local free
  rm -f "$image.new"
  free=$(df --output=avail --block-size=1M /volume | tail -n 1)
  ((free >= SIZE_MIB)) || fail "disk $DISK: the volume has room for $((free)) MiB, the disk needs $SIZE_MIB"
  truncate -s "${SIZE_MIB}M" "$image.new"
  make_filesystem "$image.new"
  sync "$image.new"
  mv -T "$image.new" "$image"
}

blank() {
  cmp -s -n 1048576 "$1" /dev/zero
}

# Answers the device in $device.
find_device() {
  if [[ -b /dev/volume ]]; then
    device=/dev/volume
    if ! blkid -p "$device" >/dev/null 2>&1; then
      blank "$device" || fail "disk $DISK: its volume holds data without a filesystem that is known here; it is left untouched"
      make_filesystem "$device"
    fi
    return
  fi
  [[ -e $image ]] || make_image
  if (($(stat -c %s "$image") < SIZE_MIB * 1048576)); then
    truncate -s "${SIZE_MIB}M" "$image"
  fi
  device=$(find_loop)
  [[ -n $device ]] || device=$(make_loop)
  [[ -n $device ]] || exit 1
}

# Grows the filesystem to its device. One that is mounted is left as it is: its machine restarted
# nothing, and the next attachment grows it.
grow() {
  exclusively "$device" || return 0
  [[ $device != /dev/loop* ]] || losetup --set-capacity "$device"
  local size blocks
  size=$(blockdev --getsize64 "$device")
  case $(blkid -p -o value -s TYPE "$device") in
    ext4)
      blocks=$(dumpe2fs -h "$device" 2>/dev/null | awk -F: '/^Block count/ { c = $2 } /^Block size/ { s = $2 } END { printf "%.0f", c * s }')
      if ((size - blocks >= 1048576)); then
        e2fsck -f -p "$device" >&2 || (($? < 4)) || fail "disk $DISK: its filesystem has errors that e2fsck does not repair by itself"
        resize2fs "$device" >&2
      fi ;;
    xfs)
      blocks=$(xfs_db -r -c 'sb 0' -c 'print dblocks blocksize' "$device" | awk '{ p = p ? p * $3 : $3 } END { printf "%.0f", p }')
      if ((size - blocks >= 1048576)); then
        mkdir -p /mnt/grow
        mount "$device" /mnt/grow
        xfs_growfs /mnt/grow >&2
        umount /mnt/grow
      fi ;;
  esac
}

publish() {
  rm -f "$node.new"
  mknod -m 0660 "$node.new" b $((0x$(stat -Lc %t "$device"))) $((0x$(stat -Lc %T "$device")))
  mv -T "$node.new" "$node"
}

prepare() {
  find_device
  if used_by_others "$device"; then
    fail "disk $DISK is still in use outside of VM $VM: $(users "$device")"
  fi
  grow
  publish
}

# Leaves when the device is free. Until then nobody else may have the disk.
leave() {
  local told=no
  until exclusively "$device" "$node"; do
    [[ -b $node ]] || ! exclusively "$device" || break
    [[ $told == yes ]] || { echo "disk $DISK stays until it is free: $(users "$device")" >&2; told=yes; }
    read -r -t 0.2 <> <(:) || true
  done
  [[ $device != /dev/loop* ]] || losetup --detach "$device"
  rm -f "$node" "$lock"
  exit 0
}

case $1 in
  prepare)
    prepare ;;
  hold)
    trap 'exit 0' TERM
    prepare
    trap leave TERM
    exec 9>"$lock"
    flock 9
    # Waits without a child process, which would be left behind.
    exec 8<> <(:)
    while :; do read -r -u 8 || true; done ;;
  release)
    [[ -b $node ]] || exit 0 # taken away by an earlier try
    exclusively "$node" "$node" || fail "$(users "$node")" ;;
esac
