# The lock of an attachment: a file next to the disk's device node. The VM can create a link at the path of the lock, and the
# attachment has the permissions of the node's root user. The functions therefore do not follow links.

# lock_held LOCK succeeds while the attachment is running, after it published the disk. The kernel releases the lock when the process dies
# or the node reboots.
lock_held() {
  perl -e 'use Fcntl qw(:DEFAULT :flock); use Errno;
    sysopen(my $lock, $ARGV[0], O_RDONLY | O_NOFOLLOW | O_NONBLOCK) or exit 1;
    exit(flock($lock, LOCK_SH | LOCK_NB) || !$!{EWOULDBLOCK})' "$1"
}

# take_lock LOCK replaces the lock, and holds it until this process exits. Perl creates the file, and bash opens it through Perl's file
# descriptor, because the path may refer to another file by then.
take_lock() {
  local descriptor
  rm -f "$1"
  coproc perl -e 'use Fcntl; $| = 1;
    sysopen(my $lock, $ARGV[0], O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600) or die "cannot create $ARGV[0]: $!\n";
    print fileno($lock), "\n";
    <STDIN>' "$1"
  local descriptors=/proc/$COPROC_PID/fd
  read -r descriptor <&"${COPROC[0]}" || fail "cannot create the lock of disk $DISK in VM $VM [disk-lock-failed]"
  exec 9<"$descriptors/$descriptor"
  flock 9
  exec {COPROC[1]}>&-
}
