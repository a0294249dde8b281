# Makes one disk appear as a device in one machine, holds it there, and lets it go.
#
#   hold      make the filesystem on a blank disk, grow one that has room, publish the device node (a
#             restart finds everything done), then wait; when told to end, leave once nothing uses the
#             device
#   prepare   for a machine whose own Pod is to have the claim: make or grow the filesystem before the
#             machine has it, then wait
#   keep      for a machine whose own Pod has the claim: wait
#   await     wait until hold has published the node, or prepare has done its work
#   release   prove that nothing uses the device, and take its node away in the same moment
#
# Environment: DISK (the CID), SIZE_MIB, FILESYSTEM, VM (namespace/name).
# A Block claim is the device /dev/volume; a Filesystem claim is mounted at /volume and carries the
# disk as an image file behind a loop device. /devices is the machine's /dev/bosh.
set -euo pipefail

node=/devices/$DISK
lock=/devices/.$DISK.lock
image=/volume/disk.img

# How a container is told to end is up to its image: where that is made for systemd, with SIGRTMIN+3.
end_signals=(TERM INT QUIT RTMIN+3)

fail() { echo "$*" >&2; exit 1; }

# exclusively DEVICE [PATH]: opens the device as a mount would. That fails while any filesystem,
# mounted in whatever namespace, is on it. PATH is removed while the device is held.
exclusively() {
  perl -e 'use Fcntl; use Errno;
    sysopen(my $f, $ARGV[0], O_RDWR | O_EXCL) or $!{EBUSY} || warn("$ARGV[0] cannot be opened: $!\n"), exit 1;
    !$ARGV[1] or unlink($ARGV[1]) or exit 1' "$@"
}

# users DEVICE: who has it mounted, one process per mount namespace, and who holds it.
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
  done
  holders "$1"
}

# holders DEVICE: which processes have it open, or work in its filesystem, be that mounted nowhere any more.
holders() {
  perl -e '
    my $device = (stat $ARGV[0])[6];
    for my $process (glob "/proc/[0-9]*") {
      for my $link ("$process/cwd", "$process/root", glob "$process/fd/*") {
        my @file = stat $link or next;
        next unless $file[0] == $device || ($file[2] & 0170000) == 0060000 && $file[6] == $device;
        open(my $comm, "<", "$process/comm") or last;
        chomp(my $name = <$comm> // "");
        printf "process %s (%s) uses %s\n", $process =~ s{.*/}{}r, $name, readlink($link) // "a file";
        last;
      }
    }' "$1"
}

# ours PROCESS: succeeds for the VM's processes. Those see the mount of its own device folder, or descend
# from one that does: the containers that a job makes have other mounts.
ours() {
  local process=$1
  while [[ -n $process && $process != 0 ]]; do
    ! grep -qs "/$VM /dev/bosh " "/proc/$process/mountinfo" || return 0
    process=$(awk '/^PPid:/ { print $2 }' "/proc/$process/status" 2>/dev/null) || return 1
  done
  return 1
}

# used_by_others DEVICE: succeeds when the device is in use, and not by this VM alone.
used_by_others() {
  ! exclusively "$1" || return 1
  local numbers process mounted=no
  numbers=$((0x$(stat -Lc %t "$1"))):$((0x$(stat -Lc %T "$1")))
  for process in /proc/[0-9]*; do
    grep -qs "^[^ ]* [^ ]* $numbers " "$process/mountinfo" || continue
    mounted=yes
    ours "${process#/proc/}" || return 0
  done
  [[ $mounted == no ]]
}

# The loop device of the image, or nothing. Comparing the backing file's device and inode is the only
# way that does not depend on mount namespaces.
find_loop() {
  local number entry
  for entry in /sys/block/loop*/loop; do
    [[ ! -e $entry ]] || loop_node "$(basename "$(dirname "$entry")")"
  done
  number=$(stat -c %d "$image")
  losetup --list --noheadings --output NAME,BACK-MAJ:MIN,BACK-INO |
    awk -v device="$(((number >> 8) & 0xfff)):$(((number & 0xff) | ((number >> 12) & 0xfff00)))" -v inode="$(stat -c %i "$image")" \
      '$2 == device && $3 == inode { print $1; exit }'
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
    # Another attachment may take the same free device first. Not every filesystem can do direct I/O.
    if losetup "$name" "$image" 2>/dev/null; then
      losetup --direct-io=on "$name" 2>/dev/null || true
      echo "$name"
      return
    fi
    pause 0.1
  done
  fail "disk $DISK: no loop device could be had on this node (is the loop module loaded?)"
}

make_filesystem() {
  case $FILESYSTEM in
    ext4) mkfs.ext4 -q -F -m 1 -E lazy_itable_init=1,lazy_journal_init=1 "$1" ;;
    xfs) mkfs.xfs -q -f -m uuid="${DISK#disk-}" "$1" ;;
    *) fail "disk $DISK: filesystem $FILESYSTEM is not known" ;;
  esac
}

# check_room IMAGE: an image that could outgrow its volume would lose what is written to it.
check_room() {
  local room
  room=$(df --output=avail --block-size=1M /volume | tail -n 1)
  [[ ! -e $1 ]] || room=$((room + $(stat -c '%b * %B' "$1") / 1048576))
  ((room >= SIZE_MIB)) || fail "disk $DISK: the volume has room for $((room)) MiB, the disk needs $SIZE_MIB"
}

# The image is formatted under another name, so that one that exists is whole.
make_image() {
  rm -f "$image.new"
  check_room "$image"
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
    check_room "$image"
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
        mount -o nouuid "$device" /mnt/grow
        xfs_growfs /mnt/grow >&2
        umount /mnt/grow
      fi ;;
  esac
}

# XFS does not mount two filesystems with the same UUID, and a disk that was made from a snapshot has that
# of its source. Only one whose journal is played back can be given another.
distinguish() {
  [[ $(blkid -p -o value -s TYPE "$device") == xfs && $(blkid -p -o value -s UUID "$device") != "${DISK#disk-}" ]] || return 0
  exclusively "$device" || return 0
  mkdir -p /mnt/play-back
  mount -o nouuid "$device" /mnt/play-back
  umount /mnt/play-back
  xfs_admin -U "${DISK#disk-}" "$device" >&2
}

publish() {
  rm -f "$node.new"
  mknod -m 0660 "$node.new" b $((0x$(stat -Lc %t "$device"))) $((0x$(stat -Lc %T "$device")))
  mv -T "$node.new" "$node"
}

bring_device() {
  rm -f "$lock"
  find_device
  if used_by_others "$device"; then
    fail "disk $DISK is still in use outside of VM $VM: $(users "$device")"
  fi
  distinguish
  grow
  publish
}

# prepare_volume: what bring_device does, short of a node in the machine. A sandbox does not show that it
# uses the device: only the first start may touch it.
prepare_volume() {
  if [[ -b /dev/volume && ! -e /devices/.prepared ]]; then
    device=/dev/volume
    exclusively "$device" || fail "disk $DISK is still in use outside of VM $VM: $(users "$device")"
    find_device
    distinguish
    grow
  fi
  touch /devices/.prepared
}

# A loop device that outlives its attachment would hold the volume.
free_loop() {
  [[ ${device:-} != /dev/loop* ]] || ! exclusively "$device" || losetup --detach "$device"
}

# ended COMMAND: what hold does whenever it ends but by a kill. The CPI takes status 1 for a failure with a
# reason.
ended() {
  local status=$?
  free_loop
  ((status <= 1)) || fail "disk $DISK: status $status of $1"
}

# Leaves when the device is free. Until then nobody else may have the disk.
leave() {
  local told=no
  until exclusively "$device" "$node" 2>/dev/null; do
    [[ -b $node ]] || ! exclusively "$device" 2>/dev/null || break
    [[ $told == yes ]] || { echo "disk $DISK stays until it is free: $(users "$device")" >&2; told=yes; }
    pause 0.2
  done
  rm -f "$node" "$lock"
  exit 0 # and free the loop device
}

# pause SECONDS, without a child process that would be left behind.
pause() { read -r -t "$1" <> <(:) || true; }

# open_elsewhere makes a node in this container's own /dev, $device, beside the one in the machine's folder.
open_elsewhere() {
  local major minor
  major=$((0x$(stat -c %t "$node"))) minor=$((0x$(stat -c %T "$node")))
  device=/dev/bosh-disk
  ((major != 7)) || device=/dev/loop$minor
  [[ -b $device ]] || mknod "$device" b "$major" "$minor"
}

# held: succeeds while hold has published the node. It then also frees the loop device.
held() { [[ -e $lock ]] && ! flock --nonblock --shared "$lock" true; }

# A disk that is a volume of the machine's own Pod is not waited for.
end() { exit 0; }

# attach BRING LEAVE: a whole life of an attachment. One that is told to end while it brings its disk
# finishes that first.
attach() {
  ending=no
  trap 'ending=yes' "${end_signals[@]}"
  "$1"
  # shellcheck disable=SC2064 # the function that is meant now
  trap "$2" "${end_signals[@]}"
  [[ $ending == no ]] || "$2"
  exec 9>"$lock"
  flock 9
  while :; do pause 3600; done
}

case $1 in
  hold)
    trap 'ended "$BASH_COMMAND"' EXIT
    attach bring_device leave ;;
  prepare)
    attach prepare_volume end ;;
  keep)
    attach true end ;;
  await)
    until held; do pause 0.02; done ;;
  release)
    [[ -b $node ]] || exit 0 # taken away by an earlier try
    # The machine's folder may lie on a filesystem mounted nodev: the device is opened by a node elsewhere.
    open_elsewhere
    exclusively "$device" "$node" || fail "$(users "$device")"
    held || free_loop ;;
esac
