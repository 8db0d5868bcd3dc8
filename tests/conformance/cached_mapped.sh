#!/bin/bash
# own
# seconds: 90
# Files behind a cache that are mapped to be stored into: the program is killed with one mapped, and the session ends all the
# same, with what was stored in the directory; one that goes on after the session has its file named, and a later
# `drain` brings what it has stored since.
. "$(dirname "$0")/own.sh"
mkdir low m
head -c 20000 /dev/zero >low/f && cp low/f low/g
cat >maps.py <<'P'
import mmap, os, signal, sys, time
name, how = sys.argv[1:]
if os.fork() == 0:
    f = open(name, 'r+b')
    m = mmap.mmap(f.fileno(), 0)
    m[5000:5006] = b'stored'
    open(name + '.mapped', 'w').close()
    if how == 'dies':
        os.kill(os.getpid(), signal.SIGKILL)
    os.setsid()
    while not os.path.exists(sys.path[0] + '/on'):
        time.sleep(0.05)
    m[9000:9005] = b'later'
    os._exit(0)
while not os.path.exists(name + '.mapped'):
    time.sleep(0.01)
P
run() { timeout 40 "$bypath" run --no-fuse --mount "host:$work/low:$work/m,cache=$work/c.img:64M" -- "$@"; }
run python3 maps.py m/f dies 2>err || fail "the session of one that is killed: $(cat err)"
same 'stored by one that was killed' "$(dd if=low/f bs=1 skip=5000 count=6 status=none)" stored
[ ! -e low/.bypath-cache ] || fail 'the marker is there still'
run python3 maps.py m/g stays 2>err >/dev/null </dev/null || fail "the session of one that goes on: $(cat err)"
same 'what is said' "$(grep -c 'files mapped' err)" 1
same 'stored by one that goes on' "$(dd if=low/g bs=1 skip=5000 count=6 status=none)" stored
timeout 20 "$bypath" cache drain c.img >out 2>&1 && fail 'drained, though it is mapped'
touch on
wait_until sh -c 'timeout 20 "$0" cache drain c.img >out 2>&1' "$bypath" || fail "$(cat out)"
wait_until sh -c '[ "$(dd if=low/g bs=1 skip=9000 count=5 status=none)" = later ]'
same 'stored after the session' "$(dd if=low/g bs=1 skip=9000 count=5 status=none)" later
wait_until test ! -e low/.bypath-cache || fail 'the marker is there still after that'
"$bypath" check c.img >out || fail "$(cat out)"
exit $failed
