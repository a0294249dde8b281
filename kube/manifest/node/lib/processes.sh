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
    my (%parent, %machine, %place);

    sub text { local $/; open(my $file, "<", "$proc/$_[0]") or return ""; return scalar(<$file>) // "" }

    for my $process (map { m{/(\d+)$} } glob "$proc/[0-9]*") {
      ($parent{$process}) = text("$process/status") =~ /^PPid:\s*(\d+)/m or delete $parent{$process}, next;
      for (split /\n/, text("$process/mountinfo")) {
        my (undef, undef, $device, $folder, $at) = split / /;
        $machine{$process} //= $1 if $at eq "/dev/bosh" && $folder =~ m{([^/]+/[^/]+)$};
        $place{$process} //= $at if $device eq $numbers;
      }
    }
    for my $process (sort { $a <=> $b } $numbers eq "all" ? keys %parent : keys %place) {
      my $of = $process;
      $of = $parent{$of} while $of && !$machine{$of};
      print join(" ", $process, $of ? $machine{$of} : "-", $place{$process} // ()), "\n";
    }' "$root/proc" "$1"
}

# machine_processes VM: the machine's, one a line.
machine_processes() { processes all | awk -v vm="$1" '$2 == vm { print $1 }'; }
