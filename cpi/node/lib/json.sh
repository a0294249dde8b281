# JSON for the start of a VM. Perl parses it without modules, because some stemcells have only perl-base, which contains no JSON module.

# json keys FILE          prints the keys of the object in the file, one per line
# json merge FILE PATCH   prints the object in the file with a JSON Merge Patch (RFC 7396) applied
#
# It fails if a file does not contain exactly one object.
json() {
  perl -e '
    use strict;
    my ($command, @files) = @ARGV;

    # value returns an object as a list of [key, value], with keys as written in the file, and any other value as its text.
    sub value {
      return object() if /\G\s*\{/gc;
      /\G\s*/gc;
      my $start = pos;
      /\G(?:true|false|null|-?\d[\d.eE+-]*)/gc || array() || string();
      return substr($_, $start, pos() - $start);
    }
    sub object {
      my @pairs;
      return \@pairs if /\G\s*\}/gc;
      do {
        /\G\s*/gc;
        my $key = string();
        token(":");
        push @pairs, [$key, value()];
      } while /\G\s*,/gc;
      token("}");
      return \@pairs;
    }
    sub array {
      /\G\[/gc or return 0;
      return 1 if /\G\s*\]/gc;
      do { value() } while /\G\s*,/gc;
      return token("]");
    }
    sub string { return /\G("(?:[^"\\\x00-\x1f]++|\\.)*+")/gc ? $1 : invalid() }
    sub token { my ($token) = @_; return /\G\s*\Q$token\E/gc || invalid() }
    sub invalid { die "$files[0] is not valid JSON at byte " . (pos() // 0) . "\n" }

    sub document {
      local $/;
      open(my $file, "<", $files[0]) or die "cannot read $files[0]: $!\n";
      local $_ = <$file> // "";
      my $object = value();
      /\G\s*\z/gc && ref $object or invalid();
      shift @files;
      return $object;
    }

    # Escapes allow several spellings of the same key.
    sub unescape {
      my ($key) = $_[0] =~ /^"(.*)"$/s;
      my %escapes = (b => "\b", f => "\f", n => "\n", r => "\r", t => "\t");
      $key =~ s{\\(?:u([0-9a-fA-F]{4})|(.))}{
        my $character = chr hex($1 // 0);
        utf8::encode($character);
        $1 ? $character : $escapes{$2} // $2
      }ge;
      return $key;
    }
    sub with_key { my ($key, @pairs) = @_; return grep { unescape($_->[0]) eq unescape($key) } @pairs }

    sub merge {
      my ($value, $patch) = @_;
      return $patch unless ref $patch;
      my @pairs = ref $value ? @$value : ();
      for my $change (@$patch) {
        my ($key, $changed) = @$change;
        my ($old) = with_key($key, @pairs);
        @pairs = grep { unescape($_->[0]) ne unescape($key) } @pairs;
        push @pairs, [$key, merge($old && $old->[1], $changed)] if $changed ne "null";
      }
      return \@pairs;
    }
    sub text { my ($value) = @_; return ref $value ? "{" . join(", ", map { "$_->[0]: " . text($_->[1]) } @$value) . "}" : $value }

    if ($command eq "keys") { print unescape($_->[0]), "\n" for @{document()} }
    if ($command eq "merge") { my $object = document(); print text(merge($object, document())), "\n" }
  ' "$@"
}
