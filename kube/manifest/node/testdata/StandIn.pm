# Every Perl of a program under test loads this: devices are opened as the kernel opens them. See stand-in
# about what a device is here, and about $STAND_INS; busy/MAJOR:MINOR there says that a filesystem on the
# device is mounted somewhere.
package StandIn;
use strict;
use Errno;
use Fcntl;

BEGIN {
  *CORE::GLOBAL::sysopen = sub (*$$;$) {
    my (undef, $path, $flags, $permissions) = @_;
    my $known = $ENV{STAND_INS};
    if (my $numbers = numbers($path)) {
      record($known, ($flags & O_EXCL ? "exclusively" : "openly") . " $path");
      if ($flags & O_EXCL && (-e "$known/busy/$numbers" || mounted($known, $path))) {
        $! = Errno::EBUSY;
        return;
      }
    }
    return CORE::sysopen($_[0], $path, $flags, $permissions // 0666);
  };
}

sub numbers {
  my ($path) = @_;
  -f $path && open(my $node, "<", $path) or return;
  read($node, my $start, 32);
  return $start =~ /^b (\d+) (\d+)\n/ ? "$1:$2" : undef;
}

sub record {
  my ($known, $call) = @_;
  $call =~ s/\Q$ENV{BOSH_NODE_ROOT}\E//g;
  open(my $log, ">>", "$known/log") or die;
  print $log "$call\n";
  close $log;
  open(my $stop, "<", "$known/stop") or return;
  chomp(my $number = <$stop>);
  open($log, "<", "$known/log") or die;
  my $calls = () = <$log>;
  return unless $calls == $number;
  open(my $stopped, ">", "$known/stopped");
  open(my $go, "<", "$known/go");
  <$go>;
}

sub mounted {
  my ($known, $path) = @_;
  open(my $mounts, "<", "$known/mounts") or return 0;
  return grep { / \Q$path\E$/ } <$mounts>;
}

1;
