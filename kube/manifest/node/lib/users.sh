# Who uses a block device.

# users DEVICE: who has it mounted, one process per mount namespace, and who holds it.
users() {
  processes "$(numbers "$1")" | perl -e '
    use strict;
    my ($proc) = @ARGV;
    my %seen;
    while (<STDIN>) {
      my ($process, undef, $at) = split;
      my $namespace = readlink("$proc/$process/ns/mnt") or next;
      next if $seen{$namespace}++;
      open(my $comm, "<", "$proc/$process/comm") or next;
      chomp(my $name = <$comm> // "");
      print "process $process ($name) has it mounted at $at\n";
    }' "$root/proc"
  holders "$(numbers "$1")"
}

# holders MAJOR:MINOR: which processes have the device open, or work in its filesystem, be that mounted
# nowhere any more.
holders() {
  perl -e '
    use strict;
    my ($proc, $numbers) = @ARGV;
    my ($major, $minor) = split /:/, $numbers;
    my $device = ($minor & 0xff) | ($major << 8) | (($minor & ~0xff) << 12); # makedev(3)
    for my $process (glob "$proc/[0-9]*") {
      for my $link ("$process/cwd", "$process/root", glob "$process/fd/*") {
        my @file = stat $link or next;
        next unless $file[0] == $device || ($file[2] & 0170000) == 0060000 && $file[6] == $device;
        open(my $comm, "<", "$process/comm") or last;
        chomp(my $name = <$comm> // "");
        printf "process %s (%s) uses %s\n", $process =~ s{.*/}{}r, $name, readlink($link) // "a file";
        last;
      }
    }' "$root/proc" "$1"
}

# used_by_others DEVICE: succeeds when the device is in use, and not by this VM alone.
used_by_others() {
  ! exclusively "$1" || return 1
  [[ $(processes "$(numbers "$1")" | awk '{ print $2 }' | sort -u) != "$VM" ]]
}
