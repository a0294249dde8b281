# Block devices.

# device_numbers PATH prints MAJOR:MINOR of the block device, or fails if PATH is not a block device. It exits if stat
# is killed.
device_numbers() {
  local found mode major minor
  found=$(stat -Lc '%f %t %T' "$1" 2>/dev/null) || exit_if_killed $? || return 1
  read -r mode major minor <<<"$found"
  ((0x$mode >> 12 == 6)) || return 1 # S_IFBLK, see inode(7)
  echo "$((0x$major)):$((0x$minor))"
}

is_device() { device_numbers "$1" >/dev/null; }

is_loop() { [[ ${1##*/} == loop* ]]; }

# check_exclusive DEVICE [PATH] opens the device with O_EXCL, as mount(2) does, and removes PATH while the device is open. It fails if a
# filesystem on the device is mounted in any mount namespace.
check_exclusive() {
  perl -e 'use Fcntl; use Errno;
    sysopen(my $device, $ARGV[0], O_RDWR | O_EXCL) or $!{EBUSY} || warn("cannot open $ARGV[0]: $!\n"), exit 1;
    !$ARGV[1] or unlink($ARGV[1]) or exit 1' "$@"
}
