#!/bin/bash
# needs: perl
# Perl's own file functions: globs, tests, in-place editing, sockets in the file system, locks.
cat >t.pl <<'P'
use strict; use Fcntl ':flock', ':seek'; use POSIX (); use File::Path; use File::Copy; use File::Find; use File::Temp; use Cwd; use IO::Socket::UNIX; $| = 1;
open my $f, '>', 'a' or die; print $f "line $_\n" for 1..5; close $f; open $f, '<', 'a'; my @l = <$f>; print scalar(@l), $l[-1]; seek $f, 0, 0; read $f, my $b, 6; print "$b ", tell $f, "\n"; close $f;
open $f, '+<', 'a'; flock $f, LOCK_EX or print "no lock\n"; seek $f, 0, SEEK_END; print $f "more\n"; truncate $f, 10; close $f; print -s 'a', -f _ ? ' file' : '', -d '.' ? ' dir' : '', -r 'a' ? ' r' : '', -x 'a' ? ' x' : '', "\n";
mkdir 'd' or die; mkdir 'd' or print "$!\n"; rename 'a', 'd/b' or die; symlink 'd/b', 's'; print readlink('s'), "\n"; link 'd/b', 'h'; my @s = stat 'h'; printf "%o %d %d\n", @s[2, 3, 7]; chmod 0600, 'h'; utime 1000, 2000, 'h'; printf "%o %d\n", (stat 'h')[2, 9]; unlink 'none' or print "$!\n"; rmdir 'd' or print "$!\n";
opendir my $d, '.'; print join(' ', sort grep { !/^tmp|^t\.pl/ } readdir $d), "\n"; closedir $d; print join(' ', sort glob('d/* s h')), "\n"; mkpath 'x/y/z'; copy 'h', 'x/c'; move 'x/c', 'x/m'; find(sub { print "$File::Find::name\n" if -f }, 'x'); rmtree 'x'; print -e 'x' ? 'there' : 'gone', "\n"; chdir 'd'; print getcwd() =~ m{/d$} ? "in d\n" : getcwd(); chdir '..';
my ($t, $n) = File::Temp::tempfile(DIR => '.'); print $t 'x'; close $t; print -s $n, "\n"; unlink $n; print `cat h | head -1`; system 'echo system >sys; cat sys'; open my $p, '|-', 'cat >piped'; print $p "through a pipe\n"; close $p; open $p, '-|', 'cat', 'piped'; print <$p>; close $p;
open my $save, '>&', \*STDOUT; open STDOUT, '>', 'redirected'; print "hidden\n"; system 'echo from child'; open STDOUT, '>&', $save; open $f, '<', 'redirected'; print <$f>; my $pid = fork; if (!$pid) { open my $c, '>>', 'log'; print $c "child\n"; close $c; exit 4 } waitpid $pid, 0; print $? >> 8, `cat log`;
my $u = IO::Socket::UNIX->new(Local => 'sock', Listen => 1) or print "sock $!\n"; if ($u) { if (!fork) { my $c = IO::Socket::UNIX->new('sock') or die "connect $!"; print $c "over a socket\n"; exit } my $c = $u->accept; print <$c>; wait; print -S 'sock' ? "is a socket\n" : "no\n"; } POSIX::mkfifo('fifo', 0600); if (!fork) { open my $c, '>', 'fifo'; print $c "over a fifo\n"; exit } open $f, '<', 'fifo'; print <$f>; wait; unlink 'sock', 'fifo';
sysopen $f, 'excl', POSIX::O_CREAT | POSIX::O_EXCL | POSIX::O_RDWR or die; syswrite $f, 'abcdef'; sysseek $f, 2, 0; sysread $f, $b, 3; print "$b\n"; sysopen $f, 'excl', POSIX::O_CREAT | POSIX::O_EXCL or print "$!\n"; my ($dev, $ino) = stat 'h'; print $ino == (stat 'd/b')[1] ? "same\n" : "other\n"; umask 077; open $f, '>', 'private'; close $f; printf "%o\n", (stat 'private')[2]; open $f, '<', 'd' and print "opened a directory\n"; print defined(read $f, $b, 1) ? 'read' : "$!", "\n"; eval { require './lib.pl' }; print $@ ? $@ : "required\n";
P
echo 'print "lib\n"; 1;' >lib.pl
perl t.pl
echo "exit $?"
printf 'a\nb\n' >e
perl -i.bak -pe 's/a/A/' e
cat e e.bak
perl -ne 'print "$ARGV $_" if eof' e e.bak
perl -MStorable -e 'store {a=>1}, "st"; print retrieve("st")->{a}, "\n"'
