# Whose the node's processes are.

# processes all           all of them, one PROCESS MACHINE a line
# processes MAJOR:MINOR   those that have the device mounted, one PROCESS MACHINE PLACE a line
#
# MACHINE is NAMESPACE/VM, or - for none. A machine's processes are those that see the mount of its own
# folder of devices, and all that descend from them: the containers that a job makes have other mounts.
processes() {
  perl -e '
    use strict;
    my ($proc, $numbers) = @ARGV;
    my (%parent, %machine, %place, %seen);

    sub text { local $/; open(my $file, "<", "$proc/$_[0]") or return ""; return scalar(<$file>) // "" }

    # mounts: what the process sees of them, as all do in its mount namespace that have the same root.
    sub mounts {
      my ($process) = @_;
      my $namespace = readlink("$proc/$process/ns/mnt");
      my $key = defined $namespace ? $namespace . (readlink("$proc/$process/root") // "") : $process;
      return $seen{$key} if $seen{$key};
      my $mountinfo = text("$process/mountinfo") or return {}; # it has ended
      my %found;
      for (split /\n/, $mountinfo) {
        my (undef, undef, $device, $folder, $at) = split / /;
        $found{machine} //= $1 if $at eq "/dev/bosh" && $folder =~ m{([^/]+/[^/]+)$};
        $found{place} //= $at if $device eq $numbers;
      }
      return $seen{$key} = \%found;
    }

    for my $process (map { m{/(\d+)$} } glob "$proc/[0-9]*") {
      ($parent{$process}) = text("$process/status") =~ /^PPid:\s*(\d+)/m or delete $parent{$process}, next;
      my $mounts = mounts($process);
      $machine{$process} = $mounts->{machine} if $mounts->{machine};
      $place{$process} = $mounts->{place} if $mounts->{place};
    }
    for my $process (sort { $a <=> $b } $numbers eq "all" ? keys %parent : keys %place) {
      my $of = $process;
      $of = $parent{$of} while $of && !$machine{$of};
      print join(" ", $process, $of ? $machine{$of} : "-", $place{$process} // ()), "\n";
    }' "$root/proc" "$1"
}

# machine_processes VM: the machine's, one a line.
machine_processes() { processes all | awk -v vm="$1" '$2 == vm { print $1 }'; }
