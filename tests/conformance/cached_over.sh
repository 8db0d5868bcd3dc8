#!/bin/bash
# own
# needs: python3
# seconds: 240
# A kernel mount over the very directory that is behind a cache: static programs, another user, another session, a program
# that nobody has started with the library see what the session sees, and change it; in the end the directory is as without
# us. Method: the same path for both, by programs with the library and without.
. "$(dirname "$0")/own.sh"
[ -e /dev/fuse ] || { echo 'skip: no /dev/fuse' && exit 0; }
low=$PWD/low image=$PWD/c.img
mkdir -p low/sub/deep && chmod 755 . low && echo below >low/f && echo far >low/sub/deep/g && seq 40000 >low/long
run() { # OPTIONS COMMAND…
    local options=$1
    shift
    timeout 60 "$bypath" run --mount "host:$low:$low,cache=$image:64M$options" -- "$@"
}
export low
outside_in "$low"

# What is there is seen by whoever looks, before anybody has brought it; and the session's own is seen at once.
run '' bash -c "$one_directory"'
ln made other; outside stat -c %h made; rm other; outside stat -c %h made
' bash "$low" >got 2>err
same 'one directory' "$? $(cat got err)" "0 $one_directory_says
2
1"
same 'no mount is left' "$(kernel_mounts "$low")" 0
same 'below' "$(ls -A low | tr '\n' ' ')$(cat low/made low/box/f | tr '\n' ' ')" 'box long made out sub new more below '
"$bypath" check "$image" >/dev/null || { echo 'check' && failed=1; }

# Another user, who could not use the image, and a program that was started before the session.
python3 - "$low" >said 2>&1 <<'P' &
import os, sys, time
low = sys.argv[1]
for _ in range(3000):
    if os.path.exists(low + "/told"):
        break
    time.sleep(0.01)
print(open(low + "/told").read(), end="")
open(low + "/answer", "w").write("heard\n")
P
other=$!
run '' bash -c 'echo told >"$1/.t" && mv "$1/.t" "$1/told"; for i in $(seq 3000); do [ -e "$1/answer" ] && break; sleep 0.01; done; cat "$1/answer"
chmod 777 "$1/box"; outside "setpriv --reuid 65534 --regid 65534 --clear-groups bash -c \"cat told; echo mine >box/mine; echo no 2>/dev/null >no\" 2>/dev/null"; stat -c "%U %s" "$1/box/mine"' bash "$low" >got 2>err
wait "$other"
same 'others' "$(cat got said)" $'heard\ntold\nnobody 5\ntold'
same 'what others made' "$(cat low/answer low/box/mine; stat -c %U low/box/mine; ls low/no 2>/dev/null)" $'heard\nmine\nnobody'

# fsync by the kernel's way waits as the other does.
run '' bash -c 'outside "echo safe >synced; sync synced"; cat /proc/*/fd/1/./synced 2>/dev/null | head -1' bash "$low" >got 2>err
same 'fsync' "$(cat got)" safe

# A second session over the same directory, and one without a cache, join; the first may end before.
run '' bash -c 'echo one >"$1/one"; for i in $(seq 3000); do [ -e "$1/two" ] && break; sleep 0.01; done; cat "$1/two"' bash "$low" >got1 2>err1 &
other=$!
wait_until test -e low/one
run '' bash -c 'cat "$1/one"; echo two >"$1/two"; sleep 1; echo three >"$1/three"; outside cat three' bash "$low" >got2 2>err2
timeout 60 "$bypath" run --mount "host:$low:$low" -- cat "$low/three" >got3 2>err3
wait "$other"
same 'two sessions' "$(cat got1 got2 got3 err1 err2 err3)" $'two\none\nthree\nthree'
no_mount() { [ "$(kernel_mounts "$low")" = 0 ] && [ ! -e low/.bypath-cache ]; }
wait_until no_mount || { echo 'the mount or the marker stays' && failed=1; }
same 'below, of two' "$(cat low/one low/two low/three)" $'one\ntwo\nthree'

# The server is killed: its mount goes, the session goes on, and all is written.
run ',sync=image' bash -c 'echo 1 >"$1/k1"; cd /; kill -9 $(pgrep -f "bypath mount --foreground.* $1 --while-used") || echo none; for i in $(seq 500); do grep -q "$1 fuse.bypath" /proc/mounts || break; sleep 0.01; done; cat "$1/k1" "$1/sub/deep/g"; echo 2 >"$1/k2"; cat "$1/long" | tail -1' bash "$low" >got 2>err
same 'server killed' "$(cat got err)" $'1\nfar\n40000'
same 'below, then' "$(cat low/k1 low/k2)" $'1\n2'
wait_until no_mount || { echo 'the mount or the marker stays' && failed=1; }

# The session is killed and a program of it goes on.
run ',sync=image' bash -c 'echo $PPID >'"$PWD"'/pid; echo 1 >"$1/s1"; for i in $(seq 3000); do [ -e '"$PWD"'/go ] && break; sleep 0.01; done; echo 2 >"$1/s2"; outside cat s2 >'"$PWD"'/seen; cat "$1/sub/deep/g" >>'"$PWD"'/seen' bash "$low" >got 2>err &
wait_until test -s pid
kill -9 "$(cat pid)"
touch go
wait_until no_mount || { echo 'killed: the mount or the marker stays' && failed=1; }
same 'session killed' "$(cat seen)" $'2\nfar'
same 'below, after that' "$(cat low/s1 low/s2)" $'1\n2'

# Read-only, what is missing is brought all the same.
echo late >low/sub/late
run ',ro' bash -c 'outside cat sub/late; outside "echo no >sub/no" | grep -o "Read-only.*"' bash "$low" >got 2>err
same 'read-only' "$(cat got err; ls low/sub/no 2>/dev/null)" $'late\nRead-only file system'

# At another place.
mkdir at && chmod 755 at
timeout 60 "$bypath" run --mount "host:$low:$PWD/at,cache=$image" -- bash -c 'outside cat "$1/one" && outside "echo 4 >$1/four" && cat "$1/four"' bash "$PWD/at" >got 2>err
same 'elsewhere' "$(cat got err low/four)" $'one\n4\n4'
same 'and empty again' "$(ls at)" ''
kill "$shell"
exit $failed
