#!/bin/bash
# own
# seconds: 60
# needs: bindfs
# Two sessions, each with a cache image and a daemon of its own in front of one directory, make, move and remove files at the same
# time: all that the one has made is there, with its own contents, and nothing else. Their images number nodes alike, so what the
# one has on its way below must not be taken for the other's. What others make in a directory
# while a round changes it is seen, though the round sets the directory's times.
# Method: bindfs over one directory; every file is synced, so that rounds of the two meet.
set -u
failed=0
fail() { echo "$*" && failed=1; }
point=$PWD/m
mkdir -p m low
cat >make.py <<'P'
import os, sys
point, who = sys.argv[1:3]
os.mkdir("%s/%s" % (point, who))
for n in range(60):
    path = "%s/%s%d" % (point, who, n)
    with open(path, "w") as f:
        f.write("%s %d\n" % (who, n) * 100)
        f.flush()
        os.fsync(f.fileno())
    if n % 3 == 1: os.rename(path, "%s/%s/%d" % (point, who, n))
    if n % 3 == 2: os.remove(path)
P
for who in a b; do
    timeout 100 "$bypath" run --no-fuse --mount "fuse:bindfs -f $PWD/low @:$point,cache=$PWD/$who.img:64M,actimeo=1" -- python3 make.py "$point" $who 2>"err.$who" || fail "$who: $(cat err.$who)" &
    sessions="${sessions:-} $!"
done
for session in $sessions; do wait "$session" || failed=1; done
for who in a b; do
    for n in $(seq 0 59); do
        case $((n % 3)) in 0) path=low/$who$n ;; 1) path=low/$who/$n ;; 2) continue ;; esac
        [ "$(sort -u "$path")" = "$who $n" ] && [ "$(wc -l <"$path")" = 100 ] || fail "$path: $(sort -u "$path" 2>&1 | head -2)"
    done
done
[ "$(find low -type f | wc -l)" = 80 ] || fail "$(find low -type f | wc -l) files"
[ -z "$(find low -name '.bypath*')" ] || fail "left: $(find low -name '.bypath*')"

# Somebody else's name comes while a round is under way.
cat >meanwhile.py <<'P'
import glob, os, sys, threading, time
point, low = sys.argv[1:]
os.listdir(point)
with open(point + "/large", "wb") as f: f.write(bytes(64 << 20))
written = threading.Thread(target=os.sync)
written.start()
until = time.monotonic() + 30
while not glob.glob(low + "/.bypath-park*") and time.monotonic() < until: pass
open(low + "/theirs", "w").close()
is_amid = bool(glob.glob(low + "/.bypath-park*"))
written.join()
until = time.monotonic() + 20
while not os.path.exists(point + "/theirs") and time.monotonic() < until: time.sleep(0.1)
print(is_amid, os.path.exists(point + "/theirs"))
P
got=$(timeout 90 "$bypath" run --no-fuse --mount "fuse:bindfs -f $PWD/low @:$point,cache=$PWD/c.img:256M,actimeo=1" -- python3 meanwhile.py "$point" "$PWD/low" 2>err)
[ "$got" = 'True True' ] || fail "a name that came during a round: $got $(cat err)"
[ $failed -eq 0 ] && echo fine
exit $failed
