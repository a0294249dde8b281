# JSON, as far as a machine's start needs it. Perl reads it, with no module: perl-base is all of Perl that a
# stemcell is sure to have, and it has none for JSON.

# json keys FILE          the names in the file's outermost hash, one a line
# json merge FILE PATCH   the file's hash, changed as PATCH says: a JSON Merge Patch, RFC 7396
#
# It fails when a file holds anything but one hash.
json() {
  perl -e '
    use strict;
    my ($what, @files) = @ARGV;

    # A hash is read as a list of [name, value], names as they are written; everything else as its text.
    sub value {
      return hash() if /\G\s*\{/gc;
      /\G\s*/gc;
      my $from = pos;
      /\G(?:true|false|null|-?\d[\d.eE+-]*)/gc || list() || string();
      return substr($_, $from, pos() - $from);
    }
    sub hash {
      my @pairs;
      return \@pairs if /\G\s*\}/gc;
      do {
        /\G\s*/gc;
        my $name = string();
        token(":");
        push @pairs, [$name, value()];
      } while /\G\s*,/gc;
      token("}");
      return \@pairs;
    }
    sub list {
      /\G\[/gc or return 0;
      return 1 if /\G\s*\]/gc;
      do { value() } while /\G\s*,/gc;
      return token("]");
    }
    sub string { return /\G("(?:[^"\\\x00-\x1f]++|\\.)*+")/gc ? $1 : damaged() }
    sub token { my ($token) = @_; return /\G\s*\Q$token\E/gc || damaged() }
    sub damaged { die "$files[0] is not JSON at byte " . (pos() // 0) . "\n" }

    sub document {
      local $/;
      open(my $file, "<", $files[0]) or die "$files[0] cannot be read: $!\n";
      local $_ = <$file> // "";
      my $hash = value();
      /\G\s*\z/gc && ref $hash or damaged();
      shift @files;
      return $hash;
    }

    # A name may be written in several ways.
    sub name {
      my ($name) = $_[0] =~ /^"(.*)"$/s;
      my %escaped = (b => "\b", f => "\f", n => "\n", r => "\r", t => "\t");
      $name =~ s{\\(?:u([0-9a-fA-F]{4})|(.))}{
        my $character = chr hex($1 // 0);
        utf8::encode($character);
        $1 ? $character : $escaped{$2} // $2
      }ge;
      return $name;
    }
    sub named { my ($name, @pairs) = @_; return grep { name($_->[0]) eq name($name) } @pairs }

    sub merge {
      my ($value, $patch) = @_;
      return $patch unless ref $patch;
      my @pairs = ref $value ? @$value : ();
      for my $change (@$patch) {
        my ($name, $changed) = @$change;
        my ($old) = named($name, @pairs);
        @pairs = grep { name($_->[0]) ne name($name) } @pairs;
        push @pairs, [$name, merge($old && $old->[1], $changed)] if $changed ne "null";
      }
      return \@pairs;
    }
    sub text { my ($value) = @_; return ref $value ? "{" . join(", ", map { "$_->[0]: " . text($_->[1]) } @$value) . "}" : $value }

    if ($what eq "keys") { print name($_->[0]), "\n" for @{document()} }
    if ($what eq "merge") { my $hash = document(); print text(merge($hash, document())), "\n" }
  ' "$@"
}
