# Copies a disk to a new one, with all attributes, and proves the copy.
#
# Environment: DISK (the new disk's CID), SIZE_MIB, FILESYSTEM, ATTACH (how it is attached), and OLD (the CID
# of the old disk), OLD_ATTACH (how that one is) and OLD_FORMATTED (true: it had a filesystem once).
# The new disk's claim is where its attachment has it, at /dev/volume or /volume; the old one's is at
# /dev/old or /old. A disk with `attach: bind` is the claim's directory itself.
# Status 28 (ENOSPC) says that the data does not fit.
. lib/shell.sh
. lib/pause.sh
. lib/device.sh
. lib/processes.sh
. lib/users.sh
. lib/loop.sh
. lib/filesystem.sh
. lib/files.sh
. lib/volume.sh

was=$root/mnt/old
is=$root/mnt/new

# find_old sets $old to the old disk's device, or directory; it is empty for a disk that has never been
# attached.
find_old() {
  old=
  if [[ $OLD_ATTACH == bind ]]; then
    old=$root/old
  elif is_device "$root/dev/old"; then
    if blkid -p "$root/dev/old" >/dev/null 2>&1; then
      old=$root/dev/old
    elif [[ ${OLD_FORMATTED:-} == true ]] || ! marked "$root/dev/old" "$OLD"; then
      blank "$root/dev/old" || fail "disk $OLD: its volume holds data without a filesystem that is known here; nothing was copied"
    fi
  elif [[ -e $root/old/disk.img ]]; then
    old=$(find_loop "$root/old/disk.img")
    [[ -n $old ]] || old=$(make_loop "$root/old/disk.img")
  elif [[ -n $(find "$root/old" -mindepth 1 ! -name lost+found ! -name disk.img.new -print -quit) ]]; then
    fail "disk $OLD: its volume holds files, and not a disk's image; nothing was copied"
  fi
  [[ -n $old || ${OLD_FORMATTED:-} != true ]] || fail "disk $OLD: it had a filesystem once, and its volume is blank; nothing was copied"
}

# What an earlier try has left on the new disk is no copy: it begins anew.
make_new() {
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
    local left
    left=$(find_loop "$image")
    [[ -z $left ]] || losetup --detach "$left"
    rm "$image"
  fi
  make_image
}

mount_new() { # options
  if [[ $ATTACH == bind ]]; then
    mount --bind "$@" "$root/volume" "$is"
    return
  fi
  find_device
  mount "$@" "$device" "$is"
  until_unmounted "$device"
}

# The kernel frees a loop device that was let go once its filesystem is unmounted, as it is when this
# container is killed.
until_unmounted() { ! is_loop "$1" || losetup --detach "$1"; }

does_not_fit() {
  echo "the data of disk $OLD does not fit on a disk of $SIZE_MIB MiB" >&2
  exit 28
}

copy() {
  local free
  free=$(($(stat --file-system --format='%f * %S' "$is")))
  (($(du --summarize --block-size=1 "$was" | cut -f1) <= free)) || does_not_fit
  # The copy has what the original has.
  [[ ! -d $is/lost+found ]] || rmdir "$is/lost+found"
  if ! cp --recursive --no-dereference --preserve=mode,ownership,timestamps,links,xattr --sparse=auto "$was/." "$is/."; then
    (($(stat --file-system --format='%f * %S' "$is") > 1048576)) || does_not_fit
    fail "disk $OLD could not be copied"
  fi
}

# fingerprint FOLDER: of the names, contents and attributes of all that is in it. Filesystems keep
# times with different precision; whole seconds they all keep.
fingerprint() {
  tar --create --directory "$1" --sort=name --format=posix --numeric-owner --acls --xattrs --xattrs-include='*' \
    --pax-option='exthdr.name=%d/%f,delete=atime,delete=ctime,delete=mtime' . | sha256sum
}

# prove compares what is on the new disk, and not what is in memory for it, with the original.
prove() {
  local copied
  sync --file-system "$is"
  umount "$is"
  mount_new -o ro
  fingerprint "$was" >"$root/tmp/was" &
  copied=$(fingerprint "$is")
  wait $!
  [[ $copied == "$(<"$root/tmp/was")" ]] ||
    fail "the copy of disk $OLD is not the same as the disk: $(diff --recursive --brief --no-dereference "$was" "$is" | head -n 3)"
}

find_old
[[ -n $old ]] || exit 0 # the new disk's first attachment makes its filesystem
[[ -d $old ]] || exclusively "$old" || fail "disk $OLD is in use: $(users "$old")"
make_new
mkdir -p "$was" "$is"
if [[ -d $old ]]; then
  mount --bind -o ro "$old" "$was"
else
  # Only a journal is written to it, as by any mount after a machine that did not end well.
  mount -o ro "$old" "$was"
  until_unmounted "$old"
fi
mount_new
copy
prove
umount "$is" "$was"
