# Stopping the processes of a VM. $init is the process ID of its init program.

# stop_timeout is how long processes may take to exit, in tenths of a second.
stop_timeout=${STOP_TIMEOUT:-100}
this_process=$BASHPID # not two dollar signs, because Kubernetes removes one of them from a container's command

# vm_processes_of KINDS prints the processes of these kinds in init's PID namespace, one per line, without init and this program. Names are
# compared, but never printed, because a process can choose its name.
#
#   supervisor, logger   runsv and svlogd of runit, which exit with their services
#   service              started by runsv
#   job                  all others, such as those started by monit
#
# In a VM with reduced security, the PID namespace of some processes cannot be read. Processes in nested namespaces have more process IDs.
vm_processes_of() {
  perl -e '
    use strict;
    my ($proc, $init, $self, $kinds) = @ARGV;

    sub text { local $/; open(my $file, "<", "$proc/$_[0]") or return ""; return scalar(<$file>) // "" }
    sub name { text("$_[0]/comm") =~ s/\n\z//r }
    sub parent { text("$_[0]/status") =~ /^PPid:\s*(\d+)/m ? $1 : 0 }
    sub depth { my ($ids) = text("$_[0]/status") =~ /^NSpid:(.*)/m; return scalar(my @ids = split " ", $ids // "") }
    sub namespace { readlink "$proc/$_[0]/ns/pid" }

    sub kind {
      my $name = name($_[0]);
      return $name eq "runsv" ? "supervisor" : $name eq "svlogd" ? "logger" : name(parent($_[0])) eq "runsv" ? "service" : "job";
    }

    sub is_self {
      my $ancestor = $_[0];
      $ancestor = parent($ancestor) while $ancestor && $ancestor != $self;
      return $ancestor;
    }

    my ($depth, $namespace) = (depth($init), namespace($init));
    for my $process (map { m{/(\d+)$} } glob "$proc/[0-9]*") {
      next if depth($process) != $depth || (namespace($process) // $namespace) ne $namespace;
      next if $process == $init || is_self($process);
      next if text("$process/cmdline") eq ""; # a kernel thread, or the process exited
      print "$process\n" if grep { kind($process) eq $_ } split " ", $kinds;
    }' "$root/proc" "$init" "$this_process" "$1"
}

# terminate KINDS sends SIGTERM to these processes, and wakes up suspended ones.
terminate() {
  local process processes
  until processes=$(vm_processes_of "$1"); do pause 0.1; done
  for process in $processes; do
    { kill -s TERM "$process" && kill -s CONT "$process"; } 2>/dev/null || true
  done
}

# wait_exited KINDS waits until these processes exit, but not longer than stop_timeout.
wait_exited() {
  local tenth found
  for ((tenth = 0; tenth < stop_timeout; tenth++)); do
    found=$(vm_processes_of "$1") || found=unknown
    [[ -n $found ]] || return 0
    pause 0.1
  done
}

# stop_jobs stops the jobs, and services that are still running.
stop_jobs() {
  terminate "service job"
  wait_exited "service job"
}
