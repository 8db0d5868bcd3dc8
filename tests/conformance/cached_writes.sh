#!/bin/bash
# own
# seconds: 400
# A directory behind a cache image that is changed becomes what a plain directory is after the same work: by real programs,
# with sessions that are killed, with fsync that waits, with two sessions, and with an image that another session left
# behind. Method: the same work by the mount and in a plain directory, then listings and contents of both.
set -u
failed=0
fail() { echo "$*" && failed=1; }
point=$PWD/m image=$PWD/c.img
mkdir m low plain
run() { # OPTIONS COMMAND…
    local options=$1
    shift
    timeout 120 "$bypath" run --no-fuse --mount "host:$PWD/low:$point,cache=$image:512M$options" -- "$@" 2>err
}
listing() { find "$1" \( -name index -o -name config -o -name t.tar -o -path '*/logs' \) -prune -o -type d -printf '%P %y %m %U %G\n' -o -printf '%P %y %m %n %s %U %G %l\n' | sort; }
contents() { (cd "$1" && find . \( -name index -o -name config -o -name t.tar -o -path '*/logs' \) -prune -o -type f -exec md5sum {} + | sort -k2); }
same() { # WHAT
    listing plain >a && contents plain >>a
    listing low >b && contents low >>b
    cmp -s a b || { fail "$1: the directory is not as a plain one:" && diff a b | head -20; }
    [ -e low/.bypath-cache ] || [ -e low/.bypath-park ] && fail "$1: left there: $(ls -d low/.bypath-*)"
    "$bypath" check "$image" >checked || { fail "$1: check" && cat checked; }
}
both() { # WHAT OPTIONS FUNCTION
    (cd plain && "$3") >said1 2>&1
    run "$2" bash -c "$(declare -f "$3"); cd $point && $3" >said2 || fail "$1: $(cat err)"
    cmp -s said1 said2 || { fail "$1: said" && diff said1 said2 | head; }
    same "$1"
}
export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z' GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@a GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
for d in low plain; do
    mkdir -p $d/src/deep/er && for i in $(seq 60); do echo "int f$i(int x) { return x + $i; }" >$d/src/f$i.c; done
    head -c 3000000 /dev/zero | tr '\0' 'z' >$d/big && ln $d/big $d/big2 && ln -s big $d/link && mkfifo $d/fifo && seq 5000 >$d/src/deep/er/numbers
    (cd $d && tar --mtime=2020-01-01 -cf src.tar src)
done

names() {
    mkdir -p n/a/b && echo 1 >n/a/one && mv n/a n/c && echo 2 >n/c/b/two && ln n/c/one n/hard && rm n/c/one && mv src/f1.c n/ && mv src/f2.c src/f3.c
    rm src/f4.c && mkdir src/f4.c && rmdir src/f4.c && echo again >src/f4.c && ln -sfn src link && chmod 4750 src/f5.c && chmod 700 src/deep
    mv src/deep n/deep && mkdir src/deep && echo other >src/deep/x && cat n/deep/er/numbers | tail -1 && touch -d '2001-01-01' n && rm big2 && mkfifo n/p && mv n/p fifo
}
both 'names' '' names
bytes() {
    echo more >>big && printf x | dd of=big bs=1 seek=1500000 conv=notrunc status=none && truncate -s 4M big && truncate -s 100000 src.tar && truncate -s 200000 src.tar
    dd if=/dev/zero of=sparse bs=1 count=1 seek=10M status=none && fallocate -p -o 4096 -l 100000 big && cp big copy && sed -i s/9/nine/ n/deep/er/numbers && : >src/f6.c
    python3 -c '
import mmap, os
f = open("big", "r+b"); m = mmap.mmap(f.fileno(), 0); m[5000:5005] = b"mmap!"; m.flush(); m[9000:9004] = b"last"; m.close(); f.close()
f = open("gone", "w+"); os.unlink("gone"); f.write("x" * 100000); f.seek(0); print(len(f.read()))
fd = os.open(".", os.O_TMPFILE | os.O_RDWR); os.write(fd, b"nameless"); os.close(fd)
os.setxattr("copy", "user.note", b"text"); print(os.getxattr("copy", "user.note"))
' && stat -c %s big copy
}
both 'bytes' '' bytes
[ "$(python3 -c 'import os; print(os.getxattr("low/copy", "user.note"))')" = "b'text'" ] || fail 'an attribute is not there'
if command -v git >/dev/null; then
    commit() { git init -q -b main src && cd src && git add -A && git commit -qm first && git checkout -qb other && git mv f7.c g7.c && echo change >>f8.c && git commit -qam second && git checkout -q main && git merge -q other && cd .. && git clone -q src clone && cd clone && echo x >x && git add x && git commit -qm third && git gc -q && git log --format=%s | cat; }
    both 'git' '' commit
    git -C low/clone fsck 2>&1 | grep -v '^dangling' | grep . && fail 'git fsck of the directory'
    [ -z "$(git -C low/clone status --porcelain)" ] || fail 'git status of the directory'
fi
if command -v cc >/dev/null && command -v make >/dev/null; then
    build() { mkdir -p mk && cd mk && for i in $(seq 12); do echo "int g$i(int x) { return x + $i; }" >g$i.c; done && echo 'int main(void) { return 0; }' >main.c && printf 'OBJ=$(patsubst %%.c,%%.o,$(wildcard *.c))\ntool: $(OBJ)\n\tcc -o $@ $(OBJ)\n' >Makefile && make -s -j4 2>&1 && ./tool && echo built && rm -f *.o tool; }
    both 'make' ',sync=image' build
fi
tars() { tar --mtime=2020-01-01 -cf t.tar src && mkdir un && tar xf t.tar -C un && cp -a un un2 && rm -rf un && mv un2 un3 && find un3 -name 'f1*' -delete && tar cf - un3 | tar tf - | wc -l; }
both 'tar, cp, rm' '' tars
if command -v rsync >/dev/null; then
    mirror() { rsync -a src/ mirror/ && echo new >>src/f9.c && rsync -a --delete src/ mirror/ && ls mirror | wc -l; }
    both 'rsync' '' mirror
fi
if python3 -c 'import sqlite3' 2>/dev/null; then
    database() { python3 -c '
import sqlite3
for mode in "delete", "wal":
    c = sqlite3.connect(f"{mode}.sqlite"); c.execute(f"pragma journal_mode={mode}"); c.execute("create table t(a, b)")
    for i in range(30):
        with c: c.execute("insert into t values(?, ?)", (i, "x" * 1000))
    print(c.execute("select count(*), sum(a) from t").fetchone(), c.execute("pragma integrity_check").fetchone()); c.close()'; }
    both 'sqlite' '' database
fi

# fsync returns when it is below; with sync=image at once, and the end of the session writes it.
run '' bash -c "echo safe >$point/synced && sync $point/synced && cat low/synced" >said || fail "fsync: $(cat err)"
[ "$(cat said)" = safe ] || fail 'fsync returned before the directory had it'
echo safe >plain/synced
run ',sync=image' bash -c "cd $point && for i in \$(seq 200); do echo \$i >r\$i; sync r\$i; done; rm r1*" || fail "sync=image: $(cat err)"
(cd plain && for i in $(seq 200); do echo $i >r$i; done; rm r1*)
same 'sync=image'

# Two sessions at once; a second cache; a plain mount; one that is only to be read.
run '' bash -c "echo first >$point/first; sleep 2; cat $point/second" >said1 &
sleep 1
timeout 60 "$bypath" run --no-fuse --mount "host:$PWD/low:$point,cache=$image" -- bash -c "echo second >$point/second; cat $point/first" >said2 2>err2 || fail "a second session: $(cat err2)"
timeout 60 "$bypath" run --no-fuse --mount "host:$PWD/low:$point,cache=$PWD/other.img:64M" -- true 2>err3 && fail 'a second cache was allowed'
grep -q 'c.img holds changes' err3 || fail "a second cache: $(cat err3)"
timeout 60 "$bypath" run --no-fuse --mount "host:$PWD/low:$point" -- true 2>err3 && fail 'a plain mount to write was allowed'
timeout 60 "$bypath" run --no-fuse --mount "host:$PWD/low:$point,ro" -- test -e "$point/src" || fail 'a plain mount to read was refused'
wait
[ "$(cat said1 said2)" = $'second\nfirst' ] || fail "two sessions do not see each other: $(cat said1 said2)"
echo first >plain/first && echo second >plain/second
same 'two sessions'
run ',ro' bash -c "echo x >$point/no" 2>/dev/null && fail 'ro: a change was made'
same 'ro'

# Left, and drained by itself, and by the next session.
run ',sync=image' true
timeout 60 "$bypath" run --no-fuse --leave --mount "host:$PWD/low:$point,cache=$image,sync=image" -- bash -c "cd $point && for i in \$(seq 300); do echo \$i >left\$i; done && mv src moved" 2>err
(cd plain && for i in $(seq 300); do echo $i >left$i; done && mv src moved)
"$bypath" cache status low >said || fail 'status'
"$bypath" cache drain "$image" || fail 'drain'
same 'left and drained'
"$bypath" cache status "$image" | grep -q 'all changes are in the directory' || fail 'status after draining'

# Everybody killed in the middle, again and again; then drained: the directory is what the cache shows.
for i in $(seq 6); do
    setsid "$bypath" run --no-fuse --mount "host:$PWD/low:$point,cache=$image,sync=image" -- bash -c "cd $point && j=0; while :; do
        j=\$((j+1)); mkdir -p k/\$((j%7)) && echo \$i.\$j >k/\$((j%7))/f\$((j%50)) && mv k/\$((j%7)) k/d\$((j%5)) 2>/dev/null; ln -f k/d\$((j%5))/f\$((j%50)) k/l\$((j%9)) 2>/dev/null; rm -rf k/d\$(((j+2)%5)); done" 2>/dev/null &
    leader=$!
    sleep "1.$i"
    kill -9 -- -"$leader" || fail 'nothing to kill'
    wait 2>/dev/null
    [ $((i % 2)) -eq 0 ] && { "$bypath" cache drain "$image" || fail "drain after a kill: $i"; }
done
"$bypath" cache drain "$image" || fail 'drain after kills'
run ',ro' bash -c "$(declare -f listing contents); listing $point; contents $point" >here
# Who goes on for those that were killed ends when nobody else uses the image; until then one takes over from another.
for i in $(seq 300); do ps -eo args | grep -q "[c]ache-spare .*$image" || break; sleep 0.1; done
listing low >there && contents low >>there
cmp -s here there || { fail 'after kills the directory is not what the cache shows:' && diff here there | head -20; }
[ -e low/.bypath-cache ] || [ -e low/.bypath-park ] && fail "after kills: left there: $(ls -ld low/.bypath-*; "$bypath" cache status "$image"; cat low/.bypath-cache; ps -ef | grep cache-spare | grep -v grep)"
"$bypath" check "$image" >checked || { fail 'after kills: check' && cat checked; }

# Killed, but for a program that goes on: what it changes, and syncs, is written all the same.
"$bypath" run --no-fuse --mount "host:$PWD/low:$point,cache=$image" -- bash -c "cd $point && : >$PWD/ready && for i in \$(seq 100); do [ -e $PWD/killed ] && break; sleep 0.1; done; echo on >went-on && sync went-on && cat $PWD/low/went-on >$PWD/on" 2>err &
leader=$!
for i in $(seq 100); do [ -e ready ] && break; sleep 0.1; done
kill -9 $leader && : >killed
for i in $(seq 200); do [ -s on ] && break; sleep 0.1; done
[ "$(cat on)" = on ] || fail "what goes on when its session is killed is not written back: $(cat err)"
for i in $(seq 200); do ps -eo args | grep -q "[c]ache-spare .*$image" || break; sleep 0.1; done
[ -e low/.bypath-cache ] && fail 'who goes on does not end'
wait

# What cannot be written is kept, and every fsync says so until it can.
if [ "$(stat -f -c %T low)" = tmpfs ]; then
    mkdir small && mount -t tmpfs -o size=1M small small && mkdir small/low
    timeout 60 "$bypath" run --no-fuse --mount "host:$PWD/small/low:$point,cache=$PWD/full.img:64M" -- bash -c "
        head -c 3000000 /dev/urandom >$point/large; sync $point/large 2>/dev/null && echo 'fsync said that it was there'
        sync $point/large 2>/dev/null && echo 'the second fsync said so'
        md5sum <$point/large >sum; mount -o remount,size=8M small; sync $point/large || echo 'it was not written when there was room'" >said 2>err || fail "full: $(cat err)"
    [ -s said ] && fail "full: $(cat said)"
    [ "$(md5sum <small/low/large)" = "$(cat sum)" ] || fail "full: not the same"
    umount small
fi
# A cache that programs have filled is written back all the same, and usable again.
mkdir tight
timeout 100 "$bypath" run --no-fuse --mount "host:$PWD/tight:$point,cache=$PWD/tight.img:16M,sync=image" -- bash -c "cd $point
    for i in \$(seq 4000); do head -c 9000 /dev/zero >f\$i || break; done 2>/dev/null; ls | wc -l; rm -f f1* && echo gone >after && cat after" >said 2>err || fail "a full cache: $(cat err)"
tail -1 said | grep -q gone || fail "a full cache: $(cat said err)"
"$bypath" cache status tight.img | grep -q 'all changes are in the directory' || fail "a full cache: $("$bypath" cache status tight.img; cat err)"
[ "$(ls tight | grep -c '^f1')" = 0 ] && [ "$(cat tight/after)" = gone ] || fail "a full cache: the directory: $(ls tight | head)"
[ $failed -eq 0 ] && echo fine
exit $failed
