# Each Perl process of a program under test loads this module, which opens fake devices like the kernel. For the files of devices and of
# FAKE_STATE, see fake-program. If busy/MAJOR:MINOR exists in FAKE_STATE, a filesystem on the device is mounted.
package FakeDevices;
use strict;
use Errno;
use Fcntl;

BEGIN {
  *CORE::GLOBAL::sysopen = sub (*$$;$) {
    my (undef, $path, $flags, $permissions) = @_;
    my $state = $ENV{FAKE_STATE};
    if (my $numbers = device_numbers($path)) {
      record($state, ($flags & O_EXCL ? "open exclusively" : "open") . " $path");
      if ($flags & O_EXCL && (-e "$state/busy/$numbers" || is_mounted($state, $path))) {
        $! = Errno::EBUSY;
        return;
      }
    }
    return CORE::sysopen($_[0], $path, $flags, $permissions // 0666);
  };
}

sub device_numbers {
  my ($path) = @_;
  -f $path && open(my $node, "<", $path) or return;
  read($node, my $start, 32);
  return $start =~ /^b (\d+) (\d+)\n/ ? "$1:$2" : undef;
}

sub record {
  my ($state, $call) = @_;
  $call =~ s/\Q$ENV{BOSH_NODE_ROOT}\E//g;
  open(my $log, ">>", "$state/log") or die;
  print $log "$call\n";
  close $log;
  open(my $pause_at, "<", "$state/pause-at") or return;
  chomp(my $number = <$pause_at>);
  open($log, "<", "$state/log") or die;
  my $calls = () = <$log>;
  return unless $calls == $number;
  open(my $paused, ">", "$state/paused");
  open(my $resume, "<", "$state/resume");
  <$resume>;
}

sub is_mounted {
  my ($state, $path) = @_;
  open(my $mounts, "<", "$state/mounts") or return 0;
  return grep { / \Q$path\E$/ } <$mounts>;
}

1;
