# The processes of the node, and their VMs.

# processes all           prints all processes, one per line: PROCESS VM
# processes MAJOR:MINOR   prints the processes that have the device mounted, one per line: PROCESS VM PATH
#
# VM is NAMESPACE/NAME, or - for a process outside of VMs. The processes of a VM are those that have its device directory mounted, and their
# descendants: containers that a job creates have other mounts.
processes() {
  perl -e '
    use strict;
    my ($proc, $device) = @ARGV;
    my (%parent, %vm, %path, %cached);

    sub text { local $/; open(my $file, "<", "$proc/$_[0]") or return ""; return scalar(<$file>) // "" }

    # mounts returns the VM, and the path of the device, according to the mounts of the process. They are the same for all processes with
    # the same mount namespace and root directory.
    sub mounts {
      my ($process) = @_;
      my $namespace = readlink("$proc/$process/ns/mnt");
      my $key = defined $namespace ? $namespace . (readlink("$proc/$process/root") // "") : $process;
      return $cached{$key} if $cached{$key};
      my $mountinfo = text("$process/mountinfo") or return {}; # the process exited
      my %found;
      for (split /\n/, $mountinfo) {
        my (undef, undef, $numbers, $root, $target) = split / /;
        $found{vm} //= $1 if $target eq "/dev/bosh" && $root =~ m{([^/]+/[^/]+)$};
        $found{path} //= $target if $numbers eq $device;
      }
      return $cached{$key} = \%found;
    }

    for my $process (map { m{/(\d+)$} } glob "$proc/[0-9]*") {
      ($parent{$process}) = text("$process/status") =~ /^PPid:\s*(\d+)/m or delete $parent{$process}, next;
      my $mounts = mounts($process);
      $vm{$process} = $mounts->{vm} if $mounts->{vm};
      $path{$process} = $mounts->{path} if $mounts->{path};
    }
    for my $process (sort { $a <=> $b } $device eq "all" ? keys %parent : keys %path) {
      my $ancestor = $process;
      $ancestor = $parent{$ancestor} while $ancestor && !$vm{$ancestor};
      print join(" ", $process, $ancestor ? $vm{$ancestor} : "-", $path{$process} // ()), "\n";
    }' "$root/proc" "$1"
}

# vm_processes VM prints the processes of the VM, one per line.
vm_processes() { processes all | awk -v vm="$1" '$2 == vm { print $1 }'; }
