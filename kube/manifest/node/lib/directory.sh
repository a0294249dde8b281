# A disk that appears as a directory in one machine, one with `attach: bind`: the volume at /volume, mounted
# in the machine's folder.
#
# /devices propagates mounts to the node, and from there into the machine. Such a mount outlives the
# container that made it: each start adopts the one that is right, and takes away what is not.

# inside WHAT [VM]: what the machine's processes do with the volume, one line each.
#
#   mounts   where they have it mounted, but for the place where the machine finds it
#   users    the same, that place included; and who works in it, by whatever mount, even one that was
#            lazily unmounted
#
# A volume is known by its device and its root there, since it may be no more than a folder of a filesystem
# that others use too.
inside() {
  # shellcheck disable=SC2046 # one word a process
  perl -e '
    use strict;
    my ($what, $root, $hint, @machine) = @ARGV;

    sub lines { open(my $file, "<", $_[0]) or return; return <$file> }
    sub name { my ($name) = lines("$root/proc/$_[0]/comm"); chomp $name; return $name }
    sub mounts { map { my @f = split; +{id => $f[0], device => $f[2], root => $f[3], at => $f[4]} } lines("$root/proc/$_[0]/mountinfo") }

    my ($volume) = reverse grep { $_->{at} eq "$root/volume" } mounts("self");
    my $below = $volume->{root} eq "/" ? "/" : "$volume->{root}/";
    my $number = (stat "$root/volume")[0];

    my (%known, %of_volume, %told, @found);
    for my $process (@machine) {
      for my $mount (mounts($process)) {
        $known{$mount->{id}} = 1;
        next if $mount->{device} ne $volume->{device} or "$mount->{root}/" !~ /^\Q$below\E/;
        $of_volume{$mount->{id}} = 1;
        next if $what eq "mounts" && $mount->{at} eq $hint or $told{$mount->{id}}++;
        push @found, "process $process (" . name($process) . ") has it mounted at $mount->{at}";
      }
    }
    for my $process (@machine) {
      my $folder = "$root/proc/$process";
      for my $link (map("$folder/$_", "cwd", "root", "exe"), glob "$folder/fd/*") {
        next if ((stat $link)[0] // -1) != $number;
        sysopen(my $handle, $link, 010000000) or next; # O_PATH: opens nothing, but tells the mount
        my ($mount) = map { /^mnt_id:\s*(\d+)/ } lines("/proc/self/fdinfo/" . fileno($handle));
        next if $known{$mount} && !$of_volume{$mount};
        push @found, "process $process (" . name($process) . ") uses " . readlink($link);
        last;
      }
    }
    print map { "$_\n" } @found;
  ' "$1" "$root" "/dev/bosh/$DISK" $(machine_processes "${2:-$VM}")
}

# placed: the mounts at the disk's place in the machine's folder, as DEVICE ROOT; there must be at most one.
placed() { awk -v at="$node" '$5 == at { print $3, $4 }' "$root/proc/self/mountinfo"; }

# volume: the volume, as DEVICE ROOT.
volume() { awk -v at="$root/volume" '$5 == at { print $3, $4 }' "$root/proc/self/mountinfo" | tail -n 1; }

# take_away unmounts the directory, which the kernel refuses while someone uses it there.
take_away() {
  while mountpoint -q "$node"; do
    umount "$node" 2>/dev/null || return 1
  done
}

place() {
  mkdir -p "$node"
  if [[ $(placed) != "$(volume)" ]]; then
    take_away || fail "disk $DISK: what an earlier attachment left in VM $VM is still in use: $(inside users)"
    mount --bind "$root/volume" "$node"
  fi
}
