#!/bin/bash
# `bypath copy` makes an image of one that is in use, as it was at one instant: what two files say at every instant they say in the
# copy too. An image that is never at rest is not copied, and nothing is left.
# own
# needs: python3
# seconds: 90
set -u
. "$(dirname "$0")/own.sh"
failed=0
"$bypath" mkfs --size 512M image >/dev/null || fail mkfs
mkdir m tree
seq 100000 >tree/numbers
"$bypath" import -q tree image:/tree || fail import
"$bypath" copy -q image unused || fail "copy of an image that nobody uses"
"$bypath" diff image:/ unused:/ || fail "it differs"
"$bypath" copy image unused 2>/dev/null && fail "replaces what is there"
"$bypath" copy image /none/x 2>/dev/null && fail "copies into a directory that is not there"
"$bypath" copy tree/numbers x 2>/dev/null && fail "copies what is no image"
[ ! -e x.part ] && [ ! -e x ] || fail "leaves something of what is no image"

# Steps: the first file grows, a name is made, the second file grows. At no instant is the second one ahead, or two behind.
cat >steps.py <<'P'
# steps.py REST: at rest for so long after each burst.
import os, sys, time
os.chdir("m")
a, b = os.open("a", os.O_CREAT | os.O_APPEND | os.O_WRONLY), os.open("b", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
rest, step = float(sys.argv[1]), 0
while not os.path.exists("stop"):
    for _ in range(200):
        os.write(a, b"%99d\n" % step)
        os.close(os.open("name", os.O_CREAT))
        os.rename("name", "other")
        os.write(b, b"%99d\n" % step)
        step += 1
    if step == 200:
        open("begun", "w")
    time.sleep(rest)
P
session() { # REST
    rm -f m/begun
    "$bypath" run --no-fuse --mount "image:$work/m" -- python3 steps.py "$1" &
    until "$bypath" stat image:/begun >/dev/null 2>&1; do sleep 0.05; done
}
ended() {
    "$bypath" run --no-fuse --mount "image:$work/m" -- touch m/stop
    wait $!
    "$bypath" drop -q image:/stop image:/begun image:/a image:/b
}
session 1
for i in 1 2 3; do
    "$bypath" copy --wait 60 --force --json image copy$i >said || fail "copy $i"
    "$bypath" check copy$i >/dev/null || fail "check of copy $i"
    "$bypath" diff image:/tree copy$i:/tree || fail "copy $i differs where nobody writes"
    a=$("$bypath" cat copy$i:/a | tail -1) b=$("$bypath" cat copy$i:/b | tail -1)
    [ "$a" = "$b" ] || [ "$a" = "$((b + 1))" ] || fail "copy $i: one file is at $a, the other at $b"
    "$bypath" cat copy$i:/a | python3 -c '
import sys
lines = [int(line) for line in sys.stdin]
sys.exit(lines != list(range(lines[0], lines[0] + len(lines))))' || fail "copy $i: a line is missing"
done
ended
session 0
"$bypath" copy --wait 0 image never 2>said && echo "an image that is always written to was at rest: not tested"
[ -e never ] || grep -q 'never at rest' said || fail "never at rest: $(cat said)"
[ ! -e never.part ] || fail "leaves something"
ended
"$bypath" check image >/dev/null || fail check
exit $failed
