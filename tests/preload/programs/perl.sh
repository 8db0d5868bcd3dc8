#!/bin/sh
# Perl's file functions.
perl -e '
use strict; use File::Find; use File::Temp qw(tempfile); use Cwd; use Fcntl qw(:flock :seek); use File::Copy; use File::Path qw(make_path remove_tree); use IO::Handle;
open(my $f, "+>", "a") or die; print $f "line $_\n" for 1..10; seek($f, 0, 0); my @l = <$f>; print scalar(@l), " ", tell($f), "\n"; flock($f, LOCK_EX) or die; truncate($f, 12); close $f; print -s "a", "\n";
open($f, ">>", "a"); syswrite($f, "appended\n"); close $f; open($f, "<", "a"); { local $/; print <$f>; } close $f;
make_path("d/e/f"); chdir "d/e" or die; print getcwd() =~ /d.e$/ ? "ok\n" : "no\n"; chdir "../.."; symlink "a", "l"; print readlink("l"), -l "l" ? " link" : "", -e "l" ? " there" : "", "\n"; link "a", "h"; print((stat "a")[3], "\n"); rename "h", "d/h"; copy("a", "b"); move("b", "c"); print join(",", sort glob("*")), "\n";
opendir(my $d, "."); my @n = sort grep !/^\./, readdir $d; my $p = telldir $d; rewinddir $d; print scalar(() = readdir $d), " @n\n"; closedir $d; find(sub { print "$File::Find::name\n" if -d }, "."); utime 1, 2, "a"; print join(" ", (stat "a")[8, 9]), "\n"; chmod 0600, "a"; printf "%o\n", (stat "a")[2]; my ($t, $tn) = tempfile(DIR => "."); print $t "x"; close $t; unlink $tn; print -e $tn ? "no\n" : "gone\n";
print `cat a`; system("echo from system >s"); open(my $pp, "|-", "cat >pipe"); print $pp "piped\n"; close $pp; open($pp, "-|", "cat pipe"); print <$pp>; close $pp; if (my $k = fork) { waitpid $k, 0 } else { open(my $o, ">", "child"); print $o "child\n"; close $o; exit 3 } print $? >> 8, "\n"; open(STDOUT, ">", "redirected"); print "to file\n"; system("echo and child"); STDOUT->flush; open(STDERR, ">&", \*STDOUT); warn "w\n"; close STDOUT;' 2>&1
cat redirected child s
perl -pi -e 's/line/LINE/' a
cat a
perl -ne 'print "$ARGV:$_"' a s
printf '#!/usr/bin/perl\nprint "script @ARGV\\n"; print <DATA>;\n__END__\ndata\n' >p.pl
chmod +x p.pl
./p.pl x y
mkdir lib
echo 'package M; sub f { "module\n" } 1' >lib/M.pm
perl -Ilib -MM -e 'print M::f()'
perl -e 'print -M "nope" // "undef", "\n"; mkdir "d" or print "$!\n"; rmdir "d" or print "$!\n"; open(F, "<", "no") or print "$!\n"; print unlink("a", "c"), "\n"; -t STDIN; print -p "s" ? 1 : 0, -f _ ? 1 : 0, "\n"'
ls
