# The disk on its volume. With volumeMode Block, the disk is the device /dev/volume. With Filesystem, the disk is an image file with a loop
# device, on the volume at /volume.

image=$root/volume/disk.img

# is_blank DEVICE succeeds if the first MiB of the device is zero.
is_blank() {
  local error status=0
  error=$(cmp -n 1048576 "$1" /dev/zero 2>&1 >/dev/null) || status=$?
  ((status < 2)) || fail "cannot read the volume of disk $DISK: $error [volume-unreadable]"
  ((status == 0))
}

# attached_marker is a file in a volume of the attachment Pod, which outlives a reboot of the node. It records that the disk was published in
# the VM. The PVC records that only when the attachment is ready.
attached_marker=$root/markers/attached

# mark_attached records that the VM may change the content of the disk from now on. Image files need no marker.
mark_attached() {
  [[ -d ${attached_marker%/*} && ! -e $attached_marker ]] || return 0
  touch "$attached_marker"
  sync "$attached_marker"
}

# was_formatted succeeds if a VM had the disk before.
was_formatted() { [[ ${FORMATTED:-} == true || -e $attached_marker ]]; }

# check_may_format fails if the disk had a filesystem before: then a blank volume is the wrong one.
check_may_format() {
  ! was_formatted ||
    fail "the volume of disk $DISK is blank, but the disk had a filesystem: this may be another volume, because the node was rebuilt or" \
      "the export changed; restore the volume with the data, or remove the annotation bosh.cloudfoundry.org/formatted of its PVC to use" \
      "the disk empty [volume-blank]"
}

# check_device_size DEVICE fails if the device is smaller than the disk.
check_device_size() {
  local mib
  mib=$(($(blockdev --getsize64 "$1") / 1048576))
  ((mib >= SIZE_MIB)) || fail "the device of disk $DISK has $mib MiB, but the disk has $SIZE_MIB MiB;" \
    "check whether the storage actually expanded the volume [volume-too-small]"
}

# formatting_mark prints a mark, which is on the device while mkfs runs. If the disk has this mark, no VM used the disk, and its content
# is from an interrupted mkfs.
formatting_mark() { echo "bosh-kubernetes-cpi makes the filesystem of disk $DISK"; }

# mark_sectors DEVICE prints the two sectors for the mark. Each mkfs keeps one of them: mkfs.xfs keeps the last sector of the first MiB, and
# mkfs.ext4 keeps the end of the device, because make_filesystem excludes it.
mark_sectors() { echo 2047 $(($(blockdev --getsize64 "$1") / 512 - 1)); }

# has_mark DEVICE SECTOR succeeds if the mark of this disk is in the sector. It exits if it cannot read the sector.
has_mark() {
  local found
  found=$(dd if="$1" bs=512 skip="$2" count=1 status=none | tr -d '\0') || exit $?
  [[ -n $found && $found == "$(formatting_mark)" ]]
}

# formatting_interrupted DEVICE succeeds if an mkfs for this disk started on the device but did not finish. It exits if it cannot read the
# device.
formatting_interrupted() {
  local sector sectors
  sectors=$(mark_sectors "$1") || exit $?
  for sector in $sectors; do
    ! has_mark "$1" "$sector" || return 0
  done
  return 1
}

# format DEVICE creates the filesystem. It discards the blocks before it writes the mark, because mkfs would discard the mark.
format() {
  local sector sectors
  check_may_format
  discard "$1"
  sectors=$(mark_sectors "$1")
  for sector in $sectors; do
    formatting_mark | dd of="$1" bs=512 seek="$sector" count=1 conv=sync,notrunc status=none
  done
  sync "$1"
  make_filesystem "$1" $(($(blockdev --getsize64 "$1") / 1024 - 4))
  sync "$1"
  for sector in $sectors; do
    ! has_mark "$1" "$sector" || dd if=/dev/zero of="$1" bs=512 seek="$sector" count=1 conv=notrunc status=none
  done
  sync "$1"
}

# check_space IMAGE fails if the volume has no space for the full size of the image file. Otherwise, data could be lost when the file grows.
check_space() {
  local mib
  mib=$(df --output=avail --block-size=1M "$root/volume" | tail -n 1)
  [[ ! -e $1 ]] || mib=$((mib + $(stat -c '%b * %B' "$1") / 1048576))
  ((mib >= SIZE_MIB)) || fail "the volume of disk $DISK has space for $((mib)) MiB, but the disk needs $SIZE_MIB MiB [volume-full]"
}

# preallocate IMAGE allocates the full size of the image file if PREALLOCATE is set, including discarded blocks, for example of mkfs. If
# the volume has too little space, it allocates nothing, to leave the space to other users.
preallocate() {
  local error
  [[ ${PREALLOCATE:-} == true ]] || return 0
  check_space "$1"
  error=$(fallocate --length "$(stat -c %s "$1")" "$1" 2>&1) ||
    fail "cannot preallocate disk $DISK on its volume (cloud_properties.preallocate): $error [preallocation-failed]"
}

# check_no_files fails if the volume has files, which an image file would hide: the disk may be a directory of a VM with
# disk_strategy: recreate. Many filesystems have hidden files and lost+found from the start.
check_no_files() {
  local found
  found=$(find "$root/volume" -mindepth 1 -maxdepth 1 ! -name '.*' ! -name lost+found ! -path "$image.new" -print -quit)
  [[ -z $found ]] || fail "the volume of disk $DISK has files, such as ${found##*/}, but not the disk's image file; nothing was changed;" \
    "attach the disk to a VM with disk_strategy: recreate [volume-not-blank]"
}

# create_image creates the image file under another name, so that an existing image file is always complete.
create_image() {
  check_may_format
  check_no_files
  rm -f "$image.new"
  check_space "$image"
  truncate -s "${SIZE_MIB}M" "$image.new"
  make_filesystem "$image.new"
  rename_synced "$image.new" "$image"
}

# prepare_device sets $device to the device of the disk, and creates a filesystem if the disk is blank. It does not change unknown content
# of a disk that had a filesystem before, because jobs may format a disk themselves, for example a dynamic disk.
prepare_device() {
  local size
  if is_device "$root/dev/volume"; then
    device=$root/dev/volume
    check_device_size "$device"
    if ! was_formatted && formatting_interrupted "$device"; then
      format "$device"
    elif ! has_filesystem "$device"; then
      if is_blank "$device"; then
        format "$device"
      elif ! was_formatted; then
        fail "the volume of disk $DISK has data without a known filesystem; nothing was changed [volume-not-blank]"
      fi
    fi
    return
  fi
  [[ -e $image ]] || create_image
  size=$(stat -c %s "$image")
  if ((size < SIZE_MIB * 1048576)); then
    check_space "$image"
    truncate -s "${SIZE_MIB}M" "$image"
  fi
  preallocate "$image"
  device=$(find_loop "$image")
  [[ -n $device ]] || device=$(create_loop "$image")
  [[ -n $device ]] || exit 1
}
