#!/bin/bash
# own
# needs: inotifywait python3
# seconds: 120
# Who watches an image is told of what goes through its kernel mount; a killed watcher leaves nothing behind, a killed
# changer keeps nobody waiting, and one that is stopped in a change does not either; a watcher's child goes on watching.
set -u
. "$(dirname "$0")/own.sh"
failed=0
at=$PWD/m
mkdir m
"$bypath" mkfs i --size 64M >/dev/null || exit 1
mirrors() { ls -d /dev/shm/*.w* 2>/dev/null | wc -l; }
said() { for _ in $(seq 1000); do grep -qE "$1" "$2" 2>/dev/null && return; sleep 0.01; done; echo "no '$1' in $2: $(cat "$2")"; failed=1; }
export at
cat >watch.py <<'P'
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.inotify_init1(0)
wd = libc.inotify_add_watch(fd, sys.argv[1].encode(), 0x308)
if len(sys.argv) > 2 and os.fork():
    os._exit(0)
os.write(1, b'watching %d %d\n' % (os.getpid(), wd))
while True:
    data = os.read(fd, 4096)
    while data:
        end = 16 + int.from_bytes(data[12:16], 'little')
        os.write(1, b'%x %s\n' % (int.from_bytes(data[4:8], 'little'), data[16:end].rstrip(b'\0')))
        data = data[end:]
P
# Beside the session another one keeps the image in use.
"$bypath" run --no-fuse -m "i:$at" -- bash -c 'mkdir $at/d; echo >ready; until [ -e stop ]; do sleep 0.01; done' &
keeper=$!
said '^$' ready

"$bypath" run --no-fuse -m "i:$at" -- python3 watch.py "$at/d" >log &
said watching log
same 'mirrors' "$(mirrors)" 1
"$bypath" run --no-fuse -m "i:$at" -- bash -c 'echo 1 >$at/d/other'
said '100 other' log
said '8 other' log
watcher() { sed -n 's/^watching \([0-9]*\) .*/\1/p' log; }
kill -9 "$(watcher)"
wait $! 2>/dev/null
"$bypath" run --no-fuse -m "i:$at" -- bash -c 'echo 1 >$at/d/other; rm $at/d/other'
for _ in 1 2 3 4 5 6 7 8; do [ "$(mirrors)" = 0 ] && break; "$bypath" run --no-fuse -m "i:$at" -- true; done
same 'after a kill' "$(mirrors)" 0

# The child goes on when its parent, which has set the watch, has ended.
"$bypath" run --no-fuse -m "i:$at" -- python3 watch.py "$at/d" child >log
said watching log
"$bypath" run --no-fuse -m "i:$at" -- bash -c 'echo 1 >$at/d/one'
said '100 one' log
# A changer that is stopped while it changes names, and then killed, keeps nobody waiting.
"$bypath" run --no-fuse -m "i:$at" -- python3 -c '
import os
open("pid", "w").write(str(os.getpid()))
for n in range(20000):
    os.mkdir("%s/d/s%d" % (os.environ["at"], n % 1000))
    os.rmdir("%s/d/s%d" % (os.environ["at"], n % 1000))
' 2>/dev/null &
run=$!
said . pid
changer=$(cat pid)
for _ in $(seq 10); do
    kill -STOP $changer; timeout 5 "$bypath" run --no-fuse -m "i:$at" -- bash -c 'mkdir $at/d/x; rmdir $at/d/x' || fail "a stopped changer keeps others"
    kill -CONT $changer
    sleep 0.01
done
kill -9 "$changer"
wait $run 2>/dev/null
"$bypath" run --no-fuse -m "i:$at" -- bash -c 'mkdir $at/d/after'
said '40000100 after' log

# Through the kernel mount, by a program that the library does not reach.
if [ -c /dev/fuse ]; then
    past_program
    mkdir k
    "$bypath" mount i k && {
        ./past make k/d/kernel
        said '100 kernel' log
        ./past remove k/d/kernel
        said '200 kernel' log
        "$bypath" umount k
    }
fi
kill -9 "$(watcher)"
echo >stop
wait $keeper
for _ in $(seq 100); do [ "$(mirrors)" = 0 ] && break; sleep 0.05; "$bypath" run --no-fuse -m "i:$at" -- true; done
same 'at the end' "$(mirrors)" 0
"$bypath" check i >check || { cat check; failed=1; }
exit $failed
