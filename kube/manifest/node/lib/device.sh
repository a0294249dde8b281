# What can be known of one block device.

# numbers DEVICE: its MAJOR:MINOR; fails when it is no block device.
numbers() {
  local mode major minor
  read -r mode major minor < <(stat -Lc '%f %t %T' "$1" 2>/dev/null) || return 1
  ((0x$mode >> 12 == 6)) || return 1 # S_IFBLK, see inode(7)
  echo "$((0x$major)):$((0x$minor))"
}

is_device() { numbers "$1" >/dev/null; }

is_loop() { [[ ${1##*/} == loop* ]]; }

# exclusively DEVICE [PATH]: opens the device as a mount would. That fails while any filesystem,
# mounted in whatever namespace, is on it. PATH is removed while the device is held.
exclusively() {
  perl -e 'use Fcntl; use Errno;
    sysopen(my $f, $ARGV[0], O_RDWR | O_EXCL) or $!{EBUSY} || warn("$ARGV[0] cannot be opened: $!\n"), exit 1;
    !$ARGV[1] or unlink($ARGV[1]) or exit 1' "$@"
}
