# The processes that use a block device.

# users DEVICE prints one process of each mount namespace in which the device is mounted, and the output of openers.
users() {
  processes "$(device_numbers "$1")" | perl -e '
    use strict;
    my ($proc) = @ARGV;
    my %seen;
    while (<STDIN>) {
      my ($process, undef, $path) = split;
      my $namespace = readlink("$proc/$process/ns/mnt") or next;
      next if $seen{$namespace}++;
      open(my $comm, "<", "$proc/$process/comm") or next;
      chomp(my $name = <$comm> // "");
      print "process $process ($name) has it mounted at $path\n";
    }' "$root/proc"
  openers "$(device_numbers "$1")"
}

# openers MAJOR:MINOR prints the processes that have the device open, and those with a working directory, root directory or open file in its
# filesystem, even if the filesystem is no longer mounted at any path.
openers() {
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

# vm_openers DEVICE prints the output of openers for the processes of this VM. An exclusive open does not detect a process that opened the
# device itself, and not a file in a mounted filesystem. vm_openers fails if it cannot find out, for example without memory.
vm_openers() {
  local numbers found processes
  numbers=$(device_numbers "$1") || return $?
  found=$(openers "$numbers") || return $?
  [[ -n $found ]] || return 0
  processes=$(vm_processes "$VM") || return $?
  awk -v processes=" ${processes//$'\n'/ } " 'index(processes, " " $2 " ")' <<<"$found"
}

# used_by_others DEVICE succeeds if the device is in use, and not only by this VM.
used_by_others() {
  ! check_exclusive "$1" || return 1
  [[ $(processes "$(device_numbers "$1")" | awk '{ print $2 }' | sort -u) != "$VM" ]]
}
