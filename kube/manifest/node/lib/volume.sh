# The disk on its volume: a Block claim is the device /dev/volume; a Filesystem claim is mounted at /volume
# and carries the disk as an image file behind a loop device.

image=$root/volume/disk.img

# blank DEVICE: succeeds when there is nothing at its beginning.
blank() {
  local trouble status=0
  trouble=$(cmp -n 1048576 "$1" /dev/zero 2>&1 >/dev/null) || status=$?
  ((status < 2)) || fail "disk $DISK: its volume cannot be read: $trouble"
  ((status == 0))
}

# A mark in a volume of the attachment's own, which outlives its node's boot: the machine has had the disk. Until the
# attachment is up, the disk's claim does not say so.
shown=$root/marks/shown

# mark_shown: from now on what is on the disk is its machine's. Image files need no mark.
mark_shown() {
  [[ -d ${shown%/*} && ! -e $shown ]] || return 0
  touch "$shown"
  sync "$shown"
}

# begun: succeeds when the disk had its filesystem once.
begun() { [[ ${FORMATTED:-} == true || -e $shown ]]; }

# may_format: a disk that had a filesystem once is not the disk that BOSH means when it is blank.
may_format() {
  ! begun ||
    fail "disk $DISK: it had a filesystem once, and its volume is blank. Is this another volume, of a node that was rebuilt," \
      "or of another export? Bring back the one with the data; or, if the disk is to begin as an empty one," \
      "take the annotation bosh.cloudfoundry.org/formatted from its claim"
}

# expanded DEVICE: a filesystem as large as BOSH was told would not fit on less.
expanded() {
  local has
  has=$(($(blockdev --getsize64 "$1") / 1048576))
  ((has >= SIZE_MIB)) || fail "disk $DISK: it has to have $SIZE_MIB MiB, and the device of its volume has $has:" \
    "was the volume expanded on paper only?"
}

# The mark of a device on which the disk's filesystem is being made. No VM has had such a disk: what is on it is what a mkfs
# that was cut short has left.
mark() { echo "bosh-kubernetes-cpi makes the filesystem of disk $1"; } # CID

# mark_sectors DEVICE: where the mark is. Each mkfs leaves one of the places alone: mkfs.xfs the end of the first MiB, mkfs.ext4
# the end of the device, which it is told to leave.
mark_sectors() { echo 2047 $(($(blockdev --getsize64 "$1") / 512 - 1)); }

# has_mark DEVICE SECTOR CID
has_mark() { [[ $(dd if="$1" bs=512 skip="$2" count=1 status=none | tr -d '\0') == "$(mark "$3")" ]]; }

# marked DEVICE CID: succeeds when the disk's filesystem was begun on the device, and not finished.
marked() {
  local sector
  for sector in $(mark_sectors "$1"); do
    ! has_mark "$1" "$sector" "$2" || return 0
  done
  return 1
}

# format DEVICE. What mkfs would discard is discarded before there is a mark.
format() {
  local sector sectors
  may_format
  discard "$1"
  sectors=$(mark_sectors "$1")
  for sector in $sectors; do
    mark "$DISK" | dd of="$1" bs=512 seek="$sector" count=1 conv=sync,notrunc status=none
  done
  sync "$1"
  make_filesystem "$1" $(($(blockdev --getsize64 "$1") / 1024 - 4))
  sync "$1"
  for sector in $sectors; do
    ! has_mark "$1" "$sector" "$DISK" || dd if=/dev/zero of="$1" bs=512 seek="$sector" count=1 conv=notrunc status=none
  done
  sync "$1"
}

# check_room IMAGE: an image that could outgrow its volume would lose what is written to it.
check_room() {
  local room
  room=$(df --output=avail --block-size=1M "$root/volume" | tail -n 1)
  [[ ! -e $1 ]] || room=$((room + $(stat -c '%b * %B' "$1") / 1048576))
  ((room >= SIZE_MIB)) || fail "disk $DISK: the volume has room for $((room)) MiB, the disk needs $SIZE_MIB"
}

# reserve_room IMAGE: takes from the volume all that the image can ever hold, where that is asked for ($RESERVE). What
# has been discarded since the last attachment, as by mkfs, is taken back. One that does not fit is not begun: it would
# take what others on the volume still have.
reserve_room() {
  local said
  [[ ${RESERVE:-} == true ]] || return 0
  check_room "$1"
  said=$(fallocate --length "$(stat -c %s "$1")" "$1" 2>&1) ||
    fail "disk $DISK: the volume does not reserve its room, as cloud_properties.reserve asks for: $said"
}

# The image is formatted under another name, so that one that exists is whole.
make_image() {
  may_format
  rm -f "$image.new"
  check_room "$image"
  truncate -s "${SIZE_MIB}M" "$image.new"
  make_filesystem "$image.new"
  rename_synced "$image.new" "$image"
}

# find_device sets $device: what was blank gets a filesystem. What jobs have put in its place on a disk that they format
# themselves, such as a dynamic one, is theirs.
find_device() {
  if is_device "$root/dev/volume"; then
    device=$root/dev/volume
    expanded "$device"
    if ! begun && marked "$device" "$DISK"; then
      format "$device"
    elif ! blkid -p "$device" >/dev/null 2>&1; then
      if blank "$device"; then
        format "$device"
      elif ! begun; then
        fail "disk $DISK: its volume holds data without a filesystem that is known here; it is left untouched"
      fi
    fi
    return
  fi
  [[ -e $image ]] || make_image
  if (($(stat -c %s "$image") < SIZE_MIB * 1048576)); then
    check_room "$image"
    truncate -s "${SIZE_MIB}M" "$image"
  fi
  reserve_room "$image"
  device=$(find_loop "$image")
  [[ -n $device ]] || device=$(make_loop "$image")
  [[ -n $device ]] || exit 1
}
