# Makes one disk appear as a directory in one machine: for disks with `attach: bind`. It comes after
# attachment.sh, whose words and parts it uses, and whose `await` is its own.
#
#   hold-directory      mount the volume in the machine's folder, then wait; when told to end, leave
#                       once nothing in the machine uses it
#   release-directory   prove that nothing in the machine uses the volume, and take it away
#
# /devices propagates mounts to the node, and from there into the machine. Such a mount outlives the
# container that made it: each start adopts the one that is right, and takes away what is not.
# shellcheck disable=SC2154 # node and lock are attachment.sh's

# inside WHAT [VM]: what the machine's processes do with the volume, one line each.
#
#   mounts   where they have it mounted, but for the place where the machine finds it
#   users    the same, that place included; and who works in it, by whatever mount, even one that was
#            lazily unmounted
#
# The machine's processes are those that have its folder mounted, and their descendants: containers
# in it may have mounts of their own. A volume is known by its device and its root there, since it may
# be no more than a folder of a filesystem that others use too.
inside() {
  perl -e '
    use strict;
    my ($what, $vm, $hint) = @ARGV;

    sub lines { open(my $file, "<", $_[0]) or return; return <$file> }
    sub mounts { map { my @f = split; +{id => $f[0], device => $f[2], root => $f[3], at => $f[4]} } lines("/proc/$_[0]/mountinfo") }

    my ($volume) = reverse grep { $_->{at} eq "/volume" } mounts("self");
    my $below = $volume->{root} eq "/" ? "/" : "$volume->{root}/";
    my $number = (stat "/volume")[0];

    my (%mounts, %parent, %machine);
    for my $process (map { m{(\d+)$} } glob("/proc/[0-9]*")) {
      my ($status) = lines("/proc/$process/stat") or next;
      ($parent{$process}) = $status =~ /.*\) \S+ (\d+)/;
      $mounts{$process} = [mounts($process)];
      $machine{$process} = grep { $_->{at} eq "/dev/bosh" && $_->{root} =~ m{/\Q$vm\E$} } @{$mounts{$process}};
    }
    sub ours { my $p = shift; while ($p) { return 1 if $machine{$p}; $p = $parent{$p} } return 0 }

    my (%known, %of_volume, %told, @found);
    for my $process (sort { $a <=> $b } grep { ours($_) } keys %parent) {
      my ($name) = lines("/proc/$process/comm");
      chomp $name;
      for my $mount (@{$mounts{$process}}) {
        $known{$mount->{id}} = 1;
        next if $mount->{device} ne $volume->{device} or "$mount->{root}/" !~ /^\Q$below\E/;
        $of_volume{$mount->{id}} = 1;
        next if $what eq "mounts" && $mount->{at} eq $hint or $told{$mount->{id}}++;
        push @found, "process $process ($name) has it mounted at $mount->{at}";
      }
    }
    for my $process (sort { $a <=> $b } grep { ours($_) } keys %parent) {
      my ($name) = lines("/proc/$process/comm");
      chomp $name;
      for my $link (map { "/proc/$process/$_" } "cwd", "root", "exe", map { m{(fd/\d+)$} } glob("/proc/$process/fd/*")) {
        next if ((stat $link)[0] // -1) != $number;
        sysopen(my $handle, $link, 010000000) or next; # O_PATH: opens nothing, but tells the mount
        my ($mount) = map { /^mnt_id:\s*(\d+)/ } lines("/proc/self/fdinfo/" . fileno($handle));
        next if $known{$mount} && !$of_volume{$mount};
        push @found, "process $process ($name) uses " . readlink($link);
        last;
      }
    }
    print map { "$_\n" } @found;
  ' "$1" "${2:-$VM}" "/dev/bosh/$DISK"
}

# The mounts at the disk's place in the machine's folder, as DEVICE ROOT; there must be at most one.
placed() { awk -v at="$node" '$5 == at { print $3, $4 }' /proc/self/mountinfo; }

take_away() {
  while mountpoint -q "$node"; do
    umount "$node" 2>/dev/null || return 1
  done
}

place() {
  mkdir -p "$node"
  if [[ $(placed) != "$(awk '$5 == "/volume" { print $3, $4 }' /proc/self/mountinfo | tail -n 1)" ]]; then
    take_away || fail "disk $DISK: what an earlier attachment left in VM $VM is still in use: $(inside users)"
    mount --bind /volume "$node"
  fi
}

# Succeeds unless the machine runs and does not see the directory.
arrives() {
  local process runs=no
  for process in /proc/[0-9]*; do
    grep -qs "/$VM /dev/bosh " "$process/mountinfo" || continue
    ! grep -qs " /dev/bosh/$DISK " "$process/mountinfo" || return 0
    runs=yes
  done
  [[ $runs == no ]]
}

# Succeeds when a machine other than this one has the volume mounted, and tells who in $users.
used_by_other_machine() {
  local process other seen=" "
  for process in /proc/[0-9]*; do
    other=$(awk -v mine="/$VM" '$5 == "/dev/bosh" { n = split($4, part, "/"); other = "/" part[n-1] "/" part[n]; if (other != mine) print substr(other, 2); exit }' "$process/mountinfo" 2>/dev/null) || continue
    [[ -n $other && $seen != *" $other "* ]] || continue
    seen+="$other "
    users=$(inside mounts "$other")
    [[ -z $users ]] || return 0
  done
  return 1
}

leave_directory() {
  local told=no found
  until found=$(inside mounts) && [[ -z $found ]] && take_away && found=$(inside users) && [[ -z $found ]]; do
    [[ $told == yes ]] || { echo "disk $DISK stays until it is free: $found" >&2; told=yes; }
    pause 0.5
  done
  [[ ! -d $node ]] || rmdir "$node"
  rm -f "$lock"
  exit 0
}

bring_directory() {
  rm -f "$lock"
  if used_by_other_machine; then
    fail "disk $DISK is still in use outside of VM $VM: $users"
  fi
  place
  arrives || { take_away; fail "disk $DISK does not appear in VM $VM: the node's $VM folder does not propagate mounts into it; recreate the VM"; }
}

case $1 in
  hold-directory)
    attach bring_directory leave_directory ;;
  release-directory)
    mountpoint -q "$node" || exit 0 # taken away by an earlier try
    found=$(inside mounts)
    [[ -z $found ]] || fail "$found"
    # The kernel refuses it while someone works in one of the places where it has appeared.
    take_away || fail "$(inside users)"
    found=$(inside users)
    [[ -z $found ]] || { place; fail "$found"; } ;;
esac
