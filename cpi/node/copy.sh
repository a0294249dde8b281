# Copies the files of a disk to its successor, with all attributes, and verifies the copy. The exit status is 28 (ENOSPC) if the data does
# not fit.
#
# Environment:
#   DISK           the CID of the successor
#   SIZE_MIB       the size of the successor
#   FILESYSTEM     the filesystem of the successor
#   ATTACH         how the successor is attached
#   PREALLOCATE    true to allocate the full size of an image file
#   OLD            the CID of the old disk
#   OLD_ATTACH     how the old disk is attached
#   OLD_FORMATTED  true if the old disk had a filesystem before
#
# The successor's PVC is mounted at /dev/volume or /volume, and the old disk's at /dev/old or /old, depending on how they are attached. A
# disk with `attach: bind` is the directory of its PVC.
. lib/shell.sh
. lib/pause.sh
. lib/device.sh
. lib/processes.sh
. lib/users.sh
. lib/loop.sh
. lib/filesystem.sh
. lib/files.sh
. lib/volume.sh

old_mount=$root/mnt/old
new_mount=$root/mnt/new

# find_old sets $old to the device or directory of the old disk, or to an empty string if the disk was never attached.
find_old() {
  local files
  old=
  if [[ $OLD_ATTACH == bind ]]; then
    old=$root/old
  elif [[ -e $root/dev/old ]]; then
    if has_filesystem "$root/dev/old"; then
      old=$root/dev/old
    elif [[ ${OLD_FORMATTED:-} == true ]] || ! formatting_interrupted "$root/dev/old" "$OLD"; then
      is_blank "$root/dev/old" || fail "the volume of disk $OLD has data without a known filesystem; nothing was copied [volume-not-blank]"
    fi
  elif [[ -e $root/old/disk.img ]]; then
    old=$(find_loop "$root/old/disk.img")
    [[ -n $old ]] || old=$(create_loop "$root/old/disk.img")
  else
    files=$(find "$root/old" -mindepth 1 ! -name lost+found ! -name disk.img.new -print -quit)
    [[ -z $files ]] || fail "the volume of disk $OLD has files, but not the disk's image file; nothing was copied [volume-not-blank]"
  fi
  [[ -n $old || ${OLD_FORMATTED:-} != true ]] ||
    fail "the volume of disk $OLD is blank, but the disk had a filesystem; nothing was copied [volume-blank]"
}

# prepare_new creates an empty filesystem or directory on the successor. It removes files copied by an earlier attempt.
prepare_new() {
  if [[ $ATTACH == bind ]]; then
    find "$root/volume" -mindepth 1 -delete
    return
  fi
  if is_device "$root/dev/volume"; then
    discard "$root/dev/volume"
    make_filesystem "$root/dev/volume"
    return
  fi
  if [[ -e $image ]]; then
    local loop
    loop=$(find_loop "$image")
    [[ -z $loop ]] || losetup --detach "$loop"
    rm "$image"
  fi
  create_image
}

# mount_new OPTIONS...
mount_new() {
  if [[ $ATTACH == bind ]]; then
    mount --bind "$@" "$root/volume" "$new_mount"
    return
  fi
  prepare_device
  mount "$@" "$device" "$new_mount"
  free_loop_on_unmount "$device"
}

# free_loop_on_unmount DEVICE detaches a mounted loop device, so that the kernel frees it when its filesystem is unmounted, even if this
# container is killed.
free_loop_on_unmount() { ! is_loop "$1" || losetup --detach "$1"; }

exit_no_space() {
  echo "the data of disk $OLD does not fit on a disk of $SIZE_MIB MiB [disk-copy-full]" >&2
  exit 28
}

copy_data() {
  local free used
  free=$(($(stat --file-system --format='%f * %S' "$new_mount")))
  used=$(du --summarize --block-size=1 "$old_mount" | cut -f1)
  ((used <= free)) || exit_no_space
  # The copy must have this directory only if the original has it.
  [[ ! -d $new_mount/lost+found ]] || rmdir "$new_mount/lost+found"
  if ! cp --recursive --no-dereference --preserve=mode,ownership,timestamps,links,xattr --sparse=auto "$old_mount/." "$new_mount/."; then
    (($(stat --file-system --format='%f * %S' "$new_mount") > 1048576)) || exit_no_space
    fail "cannot copy the files of disk $OLD [disk-copy-failed]"
  fi
}

# fingerprint DIRECTORY prints a checksum of the names, contents and attributes of all files. It includes times in whole seconds only,
# because the precision depends on the filesystem.
fingerprint() {
  tar --create --directory "$1" --sort=name --format=posix --numeric-owner --acls --xattrs --xattrs-include='*' \
    --pax-option='exthdr.name=%d/%f,delete=atime,delete=ctime,delete=mtime' . | sha256sum
}

# verify compares the copy with the original. It remounts the copy first, to read it from the disk and not from memory.
verify() {
  local copied differences
  sync --file-system "$new_mount"
  umount "$new_mount"
  mount_new -o ro
  fingerprint "$old_mount" >"$root/tmp/old-fingerprint" &
  copied=$(fingerprint "$new_mount")
  wait $!
  [[ $copied != "$(<"$root/tmp/old-fingerprint")" ]] || return 0
  differences=$(diff --recursive --brief --no-dereference "$old_mount" "$new_mount" | head -n 3) || true
  fail "the copy of disk $OLD differs from the disk: $differences [disk-copy-mismatch]"
}

find_old
[[ -n $old ]] || exit 0 # the first attachment of the successor creates its filesystem
[[ -d $old ]] || check_exclusive "$old" || fail "disk $OLD is in use: $(users "$old") [disk-in-use]"
prepare_new
mkdir -p "$old_mount" "$new_mount"
if [[ -d $old ]]; then
  mount --bind -o ro "$old" "$old_mount"
else
  # A read-only mount writes nothing, except that it replays the journal if the VM stopped without unmounting the filesystem.
  mount -o ro "$old" "$old_mount"
  free_loop_on_unmount "$old"
fi
mount_new
copy_data
verify
umount "$new_mount" "$old_mount"
