#!/bin/bash
# own
# needs: python3
# seconds: 200
# What other caches that write back have got wrong, each by name: it comes out here as on a plain directory. Method: the work
# that failed there, by real programs; then the directory below is looked at, with the image gone where it must not matter.
. "$(dirname "$0")/own.sh"
low=$PWD/low at=$PWD/at image=$PWD/c.img
export low at
run() { # OPTIONS COMMAND…
    local options=$1
    shift
    timeout 100 "$bypath" run --no-fuse --mount "host:$low:$at,cache=$image:${SIZE:-64M}$options" -- "$@"
}
# What ends a session may go on for a moment.
new() {
    for _ in $(seq 100); do pgrep -f -- "$image" >/dev/null || break; sleep 0.1; done
    rm -rf low c.img* && mkdir low
}
# until COMMAND…: 30 seconds at most, in the session.
until_it() { for _ in $(seq 1500); do "$@" 2>/dev/null && return; sleep 0.02; done; return 1; }
export -f until_it

# rclone 4293: a rename onto a name that waits to be written. 9943: a rename while the file is being written.
new
run ',sync=image' bash -c 'cd "$at"; echo a >x; echo b >y; mv y x
head -c 40000000 /dev/zero | tr "\0" z >big; until_it bash -c "ls \"$low\"/.bypath-park/* || [ -e \"$low/big\" ]" >/dev/null; mv big moved; echo c >big' 2>err || fail "renames: $(cat err)"
same 'rclone 4293' "$(cat low/x; ls low | tr '\n' ' ')" $'b\nbig moved x '
same 'rclone 9943' "$(cat low/big; tr -d z <low/moved | wc -c; stat -c %s low/moved)" $'c\n0\n40000000'

# rclone 6809: what was deleted comes back.
new
run '' bash -c 'cd "$at"; mkdir d; echo 1 >d/a; sync d/a; rm -r d; echo 2 >b' && run '' bash -c 'ls "$at"' >got
same 'rclone 6809' "$(cat got; ls low)" $'b\nb'

# rclone 2227: two caches of one directory.
new
run '' bash -c 'echo 1 >"$at/f"; timeout 50 "$0" run --no-fuse --mount "host:$low:$at.2,cache=$PWD/other.img:64M" -- true && echo "a second one was allowed"' "$bypath" >got 2>err
same 'rclone 2227' "$(cat got)" ''

# JuiceFS 7558: under load something is never written.
new
run ',sync=image' bash -c 'cd "$at"; echo first >first; (i=0; while [ ! -e "$low/../stop" ]; do i=$((i + 1)); echo $i >"n$((i % 300))"; done) & until_it test -e "$low/first" && echo "written under load"; : >"$low/../stop"; wait' >got 2>err
rm -f stop
same 'JuiceFS 7558' "$(cat got)" 'written under load'

# JuiceFS 6161: where room is short, what is not written yet goes.
new
mkdir low/many && for i in $(seq 60); do head -c 1000000 /dev/zero | tr '\0' "$((i % 10))" >"low/many/$i"; done
SIZE=24M run ',sync=image' bash -c 'cd "$at"; for i in $(seq 40); do head -c 100000 /dev/zero | tr "\0" k >mine$i; cat many/$((i % 60 + 1)) many/$(((i + 30) % 60 + 1)) >/dev/null; done; cat mine* | tr -d k | wc -c; cat mine* | wc -c' >got 2>err
same 'JuiceFS 6161' "$(cat got)$(cat low/mine* | wc -c)" $'0\n40000004000000'

# JuiceFS 250, 696: fsync that lies. Everybody is killed at once after it, and the image is lost.
new
setsid "$bypath" run --no-fuse --mount "host:$low:$at,cache=$image:64M" -- bash -c 'cd "$at"; mkdir d; seq 1000 >d/f; sync d/f; : >"$low/../synced"; sleep 100' 2>err &
leader=$!
wait_until test -e synced
kill -9 -- -"$leader"
rm -f synced c.img
same 'JuiceFS 250, 696' "$(tail -1 low/d/f)" 1000
"$bypath" cache discard low --yes || fail 'discard'

# NVCache: a failed write frees its entry. NVLog: what is below is newer than what is replayed; files beside the files.
new
if [ "$(stat -f -c %T .)" = tmpfs ]; then
    mount -t tmpfs -o size=1M low low
    run '' bash -c 'cd "$at"; head -c 3000000 /dev/urandom >f; sync f 2>/dev/null && echo lied; md5sum <f; mount -o remount,size=8M "$low"; until_it sync f || echo never' >got 2>err
    same 'NVCache' "$(cat got)" "$(md5sum <low/f)"
    umount low
fi
new
run ',sync=image' bash -c 'echo ours >"$at/f"'
echo newer >low/f
"$bypath" cache replay low 2>/dev/null && fail 'NVLog: replayed'
"$bypath" cache drain "$image" || fail 'NVLog: drain'
run '' cat "$at/f" >got
same 'NVLog' "$(cat got low/f; ls -A low)" $'newer\nnewer\nf'

# sshfs 72, 82, 88: appending by several, and to what was cut.
new
echo start >low/log
run '' bash -c 'cd "$at"; (for i in $(seq 200); do echo a$i >>log; done) & (for i in $(seq 200); do echo b$i >>log; done) & wait; wc -l <log
python3 -c "
import os
a = os.open(\"cut\", os.O_RDWR | os.O_CREAT | os.O_APPEND); os.write(a, b\"x\" * 10000); os.ftruncate(a, 5); os.write(a, b\"end\"); os.pwrite(a, b\"!\", 0); os.fsync(a)
print(os.path.getsize(\"cut\"), open(\"cut\").read())"' >got 2>err || fail "sshfs: $(cat err)"
same 'sshfs' "$(cat got low/cut; sort low/log | uniq | wc -l)" "$(printf '401\n9 xxxxxend!\nxxxxxend!401')"
exit $failed
