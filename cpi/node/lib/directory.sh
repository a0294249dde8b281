# A disk with `attach: bind`, which is a directory in its VM: the volume at /volume is mounted in the VM's directory on the node.
#
# /devices propagates mounts to the node, and from there to the VM. A mount outlives the container that created it. Each start adopts a
# mount of the volume, and unmounts others.

# volume_usage WHAT [VM] prints how the VM's processes use the volume, one use per line. WHAT is:
#
#   mounts   mounts of the volume, except the one at the disk's path, /dev/bosh/CID
#   users    all mounts of the volume, and processes with a working directory, root directory, program or open file in it, even through a
#            lazily unmounted mount
#
# Only a use that lasts counts: a container that is starting has mounts of the node for an instant. volume_usage fails if it cannot look, for
# example without memory. Bash ignores errors in a command substitution, so each command is checked. It uses return $?, because a bare
# return in a trap returns the status of the last command before the trap.
volume_usage() {
  local found attempt
  for attempt in {1..5}; do
    ((attempt == 1)) || pause 0.1
    found=$(current_volume_usage "$@") || return $?
    [[ $found ]] || return 0
  done
  echo "$found"
}

# current_volume_usage is like volume_usage, but looks only once. It identifies the volume by its device and its root directory on the
# device, because the volume may be one of several directories of a filesystem.
current_volume_usage() {
  local processes
  processes=$(vm_processes "${2:-$VM}") || return $?
  # shellcheck disable=SC2086 # one word for each process
  perl -e '
    use strict;
    my ($what, $root, $path, @processes) = @ARGV;

    sub lines { open(my $file, "<", $_[0]) or return; return <$file> }
    sub name { my ($name) = lines("$root/proc/$_[0]/comm"); chomp $name; return $name }
    sub mounts {
      map { my @f = split; +{id => $f[0], device => $f[2], root => $f[3], target => $f[4]} } lines("$root/proc/$_[0]/mountinfo")
    }

    my ($volume) = reverse grep { $_->{target} eq "$root/volume" } mounts("self");
    my $prefix = $volume->{root} eq "/" ? "/" : "$volume->{root}/";
    my $device = (stat "$root/volume")[0];

    my (%known, %of_volume, %printed, @usage);
    for my $process (@processes) {
      for my $mount (mounts($process)) {
        $known{$mount->{id}} = 1;
        next if $mount->{device} ne $volume->{device} or "$mount->{root}/" !~ /^\Q$prefix\E/;
        $of_volume{$mount->{id}} = 1;
        next if $what eq "mounts" && $mount->{target} eq $path or $printed{$mount->{id}}++;
        push @usage, "process $process (" . name($process) . ") has it mounted at $mount->{target}";
      }
    }
    for my $process (@processes) {
      my $directory = "$root/proc/$process";
      for my $link (map("$directory/$_", "cwd", "root", "exe"), glob "$directory/fd/*") {
        next if ((stat $link)[0] // -1) != $device;
        sysopen(my $handle, $link, 010000000) or next; # O_PATH: fdinfo shows the mount, without opening the file itself
        my ($mount) = map { /^mnt_id:\s*(\d+)/ } lines("/proc/self/fdinfo/" . fileno($handle));
        next if $known{$mount} && !$of_volume{$mount};
        push @usage, "process $process (" . name($process) . ") uses " . readlink($link);
        last;
      }
    }
    print map { "$_\n" } @usage;
  ' "$1" "$root" "/dev/bosh/$DISK" $processes
}

# node_mounts prints the mounts at the path of the disk in the VM's directory, as DEVICE ROOT. There should be at most one.
node_mounts() { awk -v path="$node" '$5 == path { print $3, $4 }' "$root/proc/self/mountinfo"; }

# volume_mount prints the mount of the volume, as DEVICE ROOT.
volume_mount() { awk -v path="$root/volume" '$5 == path { print $3, $4 }' "$root/proc/self/mountinfo" | tail -n 1; }

# unmount_directory unmounts the directory. It fails while a process uses the directory at this path, and if a program is killed.
unmount_directory() {
  local status
  while status=0; mountpoint -q "$node" || status=$?; ((status == 0)); do
    umount "$node" 2>/dev/null || return $?
  done
  ((status < 126)) || return "$status"
}

# mount_directory mounts the volume in the VM's directory, unless it is already mounted there.
mount_directory() {
  local found wanted
  mkdir -p "$node"
  found=$(node_mounts)
  wanted=$(volume_mount)
  if [[ $found != "$wanted" ]]; then
    unmount_directory ||
      fail "cannot unmount the volume of an earlier attachment of disk $DISK from VM $VM: $(current_volume_usage users) [disk-in-use]"
    mount --bind "$root/volume" "$node"
  fi
}
