# The lock of a disk's node, or directory, is a file next to it. The VM can write to that folder, and the attachment works with
# the node's rights: neither function follows a link that the VM has put in the place of the lock.

# held LOCK: succeeds while the attachment that made a disk's node, or directory, lives. The kernel drops its lock
# when the attachment's process dies, and a node's reboot drops all of them.
held() {
  perl -e 'use Fcntl qw(:DEFAULT :flock); use Errno;
    sysopen(my $lock, $ARGV[0], O_RDONLY | O_NOFOLLOW | O_NONBLOCK) or exit 1;
    exit(flock($lock, LOCK_SH | LOCK_NB) || !$!{EWOULDBLOCK})' "$1"
}

# take_lock LOCK: replaces the lock, and holds it until this process ends. Bash opens the file that perl has created by its
# descriptor, not by its name, which may lead elsewhere by then.
take_lock() {
  local descriptor
  rm -f "$1"
  coproc perl -e 'use Fcntl; $| = 1;
    sysopen(my $lock, $ARGV[0], O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600) or die "$ARGV[0] cannot be created: $!\n";
    print fileno($lock), "\n";
    <STDIN>' "$1"
  local opened=/proc/$COPROC_PID/fd
  read -r descriptor <&"${COPROC[0]}" || fail "disk $DISK: its lock in VM $VM cannot be created"
  exec 9<"$opened/$descriptor"
  flock 9
  exec {COPROC[1]}>&-
}
