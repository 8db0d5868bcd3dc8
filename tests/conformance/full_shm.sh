#!/bin/bash
# The directory of the shared caches is small, or full: nobody is killed by SIGBUS, what only reads gets all there is
# to read, what makes files goes on, and if a message speaks of space it names the directory and not the image.
# own
# seconds: 120
set -u
. "$(dirname "$0")/own.sh"
at=$PWD/m files=9000
cat >make.py <<'P'
import os, sys
top, count, first = sys.argv[1], int(sys.argv[2]), sys.argv[3]
for n in range(count):
    if n % 500 == 0:
        d = f"{top}/{first}{n // 500}"
        os.mkdir(d)
    os.close(os.open(f"{d}/f{n}", os.O_CREAT | os.O_WRONLY))
P
small() { mount -t tmpfs -o "size=$1" small /dev/shm; }
full() { head -c 200m /dev/zero >/dev/shm/filler 2>/dev/null; }
run() { "$bypath" run --no-fuse -m "i:$at" -- "$@"; }
# reads WHAT: all of it, by programs and by the tool.
reads() {
    local found
    found=$(run sh -c "find $at -type f | wc -l") || fail "find: $? ($1)"
    [ "$found" -eq "$files" ] || fail "find: $found of $files ($1)"
    run ls -lR "$at" >out 2>err || { tail -3 err; fail "ls -lR: $? ($1)"; }
    run sh -c "tar -cf - -C $at ." >out 2>err || { tail -3 err; fail "tar: $? ($1)"; }
    for directory in /d0 /d7 /; do "$bypath" ls -l "i:$directory" >out 2>err || { tail -3 err; fail "bypath ls: $? ($1)"; }; done
    "$bypath" ls -lR i:/ >out 2>err || { tail -3 err; fail "bypath ls -lR: $? ($1)"; }
    [ "$(grep -c ' f\|/f[0-9]' out)" -ge "$files" ] || fail "bypath ls -lR: $(wc -l <out) lines ($1)"
}
"$bypath" mkfs i --size 1G >/dev/null || exit 1
small 64m
run python3 make.py "$at" $files d || fail "making files"
reads 'roomy'
umount /dev/shm

# Small from the beginning: everything fits somehow.
small 1m
reads 'one MiB'
run python3 make.py "$at" 3000 e || fail "making files in one MiB: $?"
files=$((files + 3000))
reads 'one MiB, more files'
umount /dev/shm

# Somebody else fills it while a session runs; and a kernel mount.
small 8m
mkfifo go
run sh -c "ls $at >/dev/null; read -r x <go; ls -lR $at >out2 2>&1; echo ls \$? >said; find $at -type f 2>&1 | wc -l >>said; touch $at/new 2>err; [ \$? -le 1 ]; echo touch \$? >>said; rm -f $at/new" & session=$!
sleep 0.5
full
echo >go
wait $session
[ "$(tr '\n' ' ' <said)" = "ls 0 $files touch 0 " ] || { tail -3 out2; fail "in a session: $(tr '\n' ' ' <said)"; }
rm -f /dev/shm/filler
if [ -c /dev/fuse ]; then
    mkdir -p k
    "$bypath" mount i k || fail "mount"
    full
    found=$(find k -type f | wc -l)
    [ "$found" -eq "$files" ] || fail "find through the mount: $found of $files"
    ls -lR k >out 2>err || { tail -3 err; fail "ls -lR through the mount: $?"; }
    rm -f /dev/shm/filler
    "$bypath" umount k || fail "umount"
fi

# A directory of the kernel's, whose session has a cache there, too.
umount /dev/shm
small 1m
mkdir dir
for n in $(seq 3000); do : >dir/f"$n"; done
[ "$("$bypath" run -m "host:$PWD/dir:$at" -- sh -c "ls -l $at | wc -l" 2>err)" -eq 3001 ] || fail "a host: session: $(tail -3 err)"
full
"$bypath" run -m "host:$PWD/dir:$at" -- true 2>err && fail "a host: session without room for a cache"
grep -q '/dev/shm.*directory is full' err || fail "not told what is full: $(cat err)"

# No room for the first page: refused, and told what is full.
umount /dev/shm
small 1m
full
"$bypath" import /etc/passwd i:/more >out 2>&1 && fail "imported without room for a cache"
grep -q '/dev/shm' out || fail "not told what is full: $(cat out)"
umount /dev/shm
"$bypath" check i >out || { tail -3 out; fail "the image is damaged"; }
exit 0
