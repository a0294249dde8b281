# Copies a disk to a new one, with all attributes, and proves the copy. It goes on where attachment.sh
# ends, and uses its functions.
#
# Environment: that of the new disk's attachment, ATTACH (how the new disk is attached), and OLD (the CID
# of the old disk) and OLD_ATTACH (how that one is).
# The new disk's claim is where its attachment has it, at /dev/volume or /volume; the old one's is at
# /dev/old or /old. A disk with `attach: bind` is the claim's directory itself.
# Status 28 (ENOSPC) says that the data does not fit.
# shellcheck shell=bash disable=SC2154 # $image and $device are attachment.sh's

# Answers the old disk's device, or directory, in $old; an empty one stands for a disk that has never been attached.
find_old() {
  old=
  if [[ $OLD_ATTACH == bind ]]; then
    old=/old
  elif [[ -b /dev/old ]]; then
    if blkid -p /dev/old >/dev/null 2>&1; then
      old=/dev/old
    else
      blank /dev/old || fail "disk $OLD: its volume holds data without a filesystem that is known here; nothing was copied"
    fi
  elif [[ -e /old/disk.img ]]; then
    local image=/old/disk.img
    old=$(find_loop)
    [[ -n $old ]] || old=$(make_loop)
  elif [[ -n $(find /old -mindepth 1 ! -name lost+found ! -name disk.img.new -print -quit) ]]; then
    fail "disk $OLD: its volume holds files, and not a disk's image; nothing was copied"
  fi
}

# What an earlier try has left on the new disk is no copy: it begins anew.
make_new() {
  if [[ $ATTACH == bind ]]; then
    find /volume -mindepth 1 -delete
    return
  fi
  if [[ -b /dev/volume ]]; then
    make_filesystem /dev/volume
    return
  fi
  if [[ -e $image ]]; then
    local left
    left=$(find_loop)
    [[ -z $left ]] || losetup --detach "$left"
    rm "$image"
  fi
  make_image
}

mount_new() { # options
  if [[ $ATTACH == bind ]]; then
    mount --bind "$@" /volume /mnt/new
    return
  fi
  find_device
  mount "$@" "$device" /mnt/new
  until_unmounted "$device"
}

# The kernel frees a loop device that was let go once its filesystem is unmounted, as it is when this
# container is killed.
until_unmounted() {
  [[ $1 != /dev/loop* ]] || losetup --detach "$1"
}

does_not_fit() {
  echo "the data of disk $OLD does not fit on a disk of $SIZE_MIB MiB" >&2
  exit 28
}

copy() {
  local free
  free=$(($(stat --file-system --format='%f * %S' /mnt/new)))
  (($(du --summarize --block-size=1 /mnt/old | cut -f1) <= free)) || does_not_fit
  # The copy has what the original has.
  [[ ! -d /mnt/new/lost+found ]] || rmdir /mnt/new/lost+found
  if ! cp --recursive --no-dereference --preserve=mode,ownership,timestamps,links,xattr --sparse=auto /mnt/old/. /mnt/new/.; then
    (($(stat --file-system --format='%f * %S' /mnt/new) > 1048576)) || does_not_fit
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
  local is
  sync --file-system /mnt/new
  umount /mnt/new
  mount_new -o ro
  fingerprint /mnt/old >/tmp/was &
  is=$(fingerprint /mnt/new)
  wait $!
  [[ $is == "$(</tmp/was)" ]] ||
    fail "the copy of disk $OLD is not the same as the disk: $(diff --recursive --brief --no-dereference /mnt/old /mnt/new | head -n 3)"
}

find_old
[[ -n $old ]] || exit 0 # the new disk's first attachment makes its filesystem
[[ -d $old ]] || exclusively "$old" || fail "disk $OLD is in use: $(users "$old")"
make_new
mkdir -p /mnt/old /mnt/new
if [[ -d $old ]]; then
  mount --bind -o ro "$old" /mnt/old
else
  # Only a journal is written to it, as by any mount after a machine that did not end well.
  mount -o ro "$old" /mnt/old
  until_unmounted "$old"
fi
mount_new
copy
prove
umount /mnt/new /mnt/old
