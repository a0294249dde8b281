# A machine's processes at its end. $init is its PID 1.

# How long processes are given to end, in tenths of a second.
time_to_end=${TIME_TO_END:-100}
own_process=$BASHPID # two dollar signs would be one in a container's command

# residents KINDS: the numbers of the processes of init's PID namespace that are of these kinds, one a line. Init
# is none of them, nor is this program. A process may call itself what it likes: names are compared, never printed.
#
#   supervisor, logger   runit's runsv and svlogd, which end with what they serve
#   service              what a runsv runs
#   job                  all others, as what monit has started
#
# From inside of a machine with reduced security the namespace of some processes cannot be read: in its /proc those
# of the namespaces within have more numbers.
residents() {
  perl -e '
    use strict;
    my ($proc, $init, $own, $kinds) = @ARGV;

    sub text { local $/; open(my $file, "<", "$proc/$_[0]") or return ""; return scalar(<$file>) // "" }
    sub name { text("$_[0]/comm") =~ s/\n\z//r }
    sub parent { text("$_[0]/status") =~ /^PPid:\s*(\d+)/m ? $1 : 0 }
    sub depth { my ($numbers) = text("$_[0]/status") =~ /^NSpid:(.*)/m; return scalar(my @all = split " ", $numbers // "") }
    sub namespace { readlink "$proc/$_[0]/ns/pid" }

    sub kind {
      my $name = name($_[0]);
      return $name eq "runsv" ? "supervisor" : $name eq "svlogd" ? "logger" : name(parent($_[0])) eq "runsv" ? "service" : "job";
    }

    sub own {
      my $each = $_[0];
      $each = parent($each) while $each && $each != $own;
      return $each;
    }

    my ($depth, $namespace) = (depth($init), namespace($init));
    for my $process (map { m{/(\d+)$} } glob "$proc/[0-9]*") {
      next if depth($process) != $depth || (namespace($process) // $namespace) ne $namespace;
      next if $process == $init || own($process);
      next if text("$process/cmdline") eq ""; # it has ended
      print "$process\n" if grep { kind($process) eq $_ } split " ", $kinds;
    }' "$root/proc" "$init" "$own_process" "$1"
}

# tell_to_end KINDS
tell_to_end() {
  local each
  for each in $(residents "$1"); do
    kill -s TERM "$each" 2>/dev/null || true
  done
}

# await_end KINDS: until they have ended, or their time is over.
await_end() {
  local tenth
  for ((tenth = 0; tenth < time_to_end; tenth++)); do
    [[ -n $(residents "$1") ]] || return 0
    pause 0.1
  done
}

end_jobs() {
  tell_to_end "service job"
  await_end "service job"
}
