#!/bin/bash
# needs: perl setsid
# A service as they were before systemd: forks twice, session of its own, closed descriptors, pid file under a
# lock, log, a FIFO for requests, HUP opens the log again, TERM ends it.
cat >service.pl <<'P'
use strict; use POSIX qw(setsid :fcntl_h); use Fcntl ':flock';
exit 0 if fork; setsid(); exit 0 if fork; chdir 'run' or die; umask 027; POSIX::close($_) for 0 .. 20;
open STDIN, '<', '/dev/null'; open STDOUT, '>>', 'log'; open STDERR, '>&', \*STDOUT; $| = 1;
open my $pid, '+>>', 'pid' or die; flock $pid, LOCK_EX | LOCK_NB or do { print "runs already\n"; exit 1 }; truncate $pid, 0; syswrite $pid, "$$\n";
my ($end, $again) = (0, 0); $SIG{TERM} = sub { $end = 1 }; $SIG{HUP} = sub { $again = 1 };
open my $in, '+<', 'requests' or die $!; print "ready\n"; open my $r, '>', 'ready'; close $r;
until ($end) {
    if ($again) { $again = 0; open STDOUT, '>>', 'log'; open STDERR, '>&', \*STDOUT; print "log opened again\n"; open my $r, '>', 'again'; close $r }
    my $n = sysread $in, my $line, 100; next unless defined $n; for (split /\n/, $line) { print "request $_\n"; open my $o, '>', "answer.tmp"; print $o uc; close $o; rename 'answer.tmp', "answer-$_" }
}
print "ends\n"; unlink 'pid';
P
wait_for() {
    for _ in $(seq 3000); do
        [ -e "$1" ] && return
        sleep 0.01
    done
    echo "no $1"
}
mkdir run
mkfifo run/requests
perl service.pl
echo "exit $?"
wait_for run/ready
echo one >run/requests
wait_for run/answer-one
cat run/answer-one
echo
perl service.pl
for _ in $(seq 3000); do
    grep -q already run/log && break
    sleep 0.01
done
pid=$(cat run/pid)
[ "$(ps -o sid= -p "$pid" 2>/dev/null || echo 0)" != "$(ps -o sid= -p $$ 2>/dev/null)" ] && echo session
mv run/log run/log.1
kill -HUP "$pid"
wait_for run/again
echo two >run/requests
wait_for run/answer-two
cat run/answer-two
echo
kill -TERM "$pid"
for _ in $(seq 3000); do
    [ -e run/pid ] || break
    sleep 0.01
done
ls run
cat run/log.1 run/log
stat -c '%a %n' run/log run/ready
(setsid sh -c 'cd run; sleep 0.05; echo late >late.new; mv late.new late' >/dev/null 2>&1 &)
wait_for run/late
cat run/late
nohup sh -c 'echo kept on' >nohup.txt 2>/dev/null
cat nohup.txt
