#!/bin/bash
# own
# seconds: 240
# needs: bindfs python3
# A FUSE daemon behind a cache image can be changed: what programs have done is there in the end, as on tmpfs; a session
# that is killed, a daemon that is killed in the midst of a round, and one that has no room lose nothing; drain goes on
# with the daemon; what others have put there meanwhile stays. Method: bindfs over a directory, a twin of it by the kernel.
set -u
failed=0
fail() { echo "$*" && failed=1; }
point=$PWD/m image=$PWD/c.img
mkdir -p m low twin
behind() { # OPTIONS COMMAND…
    local options=$1
    shift
    timeout 100 "$bypath" run --no-fuse --mount "fuse:bindfs -f $PWD/low @:$point,cache=$image:64M$options" -- "$@" 2>err
}
daemon() { for id in $(pgrep -x bindfs); do tr '\0' ' ' <"/proc/$id/cmdline" | grep -q "$PWD/low " && echo "$id"; done; }
tree() { (cd "$1" && find . -mindepth 1 -printf '%P %y %m %n %U %G %l' \( -type f -printf ' %s %T@\n' -o -printf '\n' \) | sort && find . -type f -exec md5sum {} + | sort); }
same() { # WHEN
    tree twin | sed 's/ [0-9.]*$//' >want && tree low | sed 's/ [0-9.]*$//' >have
    cmp -s want have || { fail "$1: the directory is not the same:" && diff want have | head -20 && cat err; }
    [ ! -e low/.bypath-park ] || fail "$1: the park is left"
    [ ! -e $image.bypath-cache ] || fail "$1: the marker is left"
    "$bypath" check "$image" >checked || { fail "$1: check" && cat checked; }
}
plant() { mkdir -p "$1/d/e" && echo hello >"$1/f" && seq 50000 >"$1/d/big" && ln -s f "$1/l" && for i in $(seq 100); do echo "$i" >"$1/d/e/$i"; done; }
plant low && plant twin
work() { cd "$1" && echo more >>f && mv d/e/1 f2 && mv d/e moved && rm moved/2 && mkdir n && ln f2 n/hard && ln -s ../f n/s && mkfifo n/p &&
    chmod 640 f && printf x | dd of=d/big bs=1 seek=100000 conv=notrunc 2>/dev/null && truncate -s 1000 moved/50 && mv moved/3 moved/4 &&
    cp d/big n/copy && mv d/big n/big && rm -rf d && touch -d '2001-02-03 04:05:06' n/copy && mv f2 f; }
(work twin) && behind '' bash -c "$(declare -f work); work $point" || fail "work: $(cat err)"
same work
# Programs, and a second session that joins.
behind '' bash -c "cd $point && git -c init.defaultBranch=main init -q g && cd g && cp -r ../moved ../n/big . && git add . && git -c user.name=a -c user.email=a@b commit -qm one && git fsck" >/dev/null || fail "git: $(cat err)"
git -C low/g -c safe.directory='*' status --short 2>/dev/null | grep . && fail 'git sees changes below'
rm -rf low/g/.git && (cd twin && mkdir g && cp -r moved n/big g)
behind '' rm -rf "$point/g" && rm -rf twin/g
same git
# Who renames without a pause keeps nobody from what is not here yet.
for at in low twin; do for d in $(seq 20); do mkdir -p $at/cold/$d && for f in 1 2 3; do echo $d.$f >$at/cold/$d/$f; done; done; done
rm -f "$image"
behind '' bash -c "cd $point; python3 -c '
import os
open(\"one\", \"w\").close()
while not os.path.exists(\"stop\"):
    os.rename(\"one\", \"other\")
    os.rename(\"other\", \"one\")
os.remove(\"one\")' & for d in \$(seq 20); do for f in 1 2 3; do [ \"\$(cat cold/\$d/\$f 2>&1)\" = \$d.\$f ] || echo \$d.\$f; done; done; touch stop; wait; rm stop" >said || fail "renames: $(cat err)"
[ -s said ] && fail "beside renames: $(cat said)"
same renames
# fsync has it below.
behind '' bash -c "echo synced >$point/synced && sync $point/synced && cat low/synced" | grep -q synced || fail 'fsync did not reach the daemon'
echo synced >twin/synced
# A session that is killed leaves what it has done in the image; drain takes it to the daemon.
timeout 60 "$bypath" run --no-fuse --mount "fuse:bindfs -f $PWD/low @:$point,cache=$image,sync=image" -- bash -c "for i in \$(seq 300); do echo \$i >$point/k\$i; done; mv $point/moved $point/again; kill -9 \$PPID; sleep 0.2" 2>err
for i in $(seq 300); do echo "$i" >"twin/k$i"; done && mv twin/moved twin/again
wait_for() { for _ in $(seq 600); do "$@" && return; sleep 0.05; done; return 1; }
no_daemon() { [ -z "$(daemon)" ]; }
wait_for no_daemon || fail 'a daemon is left'
"$bypath" cache status "$image" | grep -q 'bindfs' || fail "status: $("$bypath" cache status "$image")"
timeout 60 "$bypath" cache drain "$image" 2>err || fail "drain: $(cat err)"
same killed
# A daemon that is killed again and again in the midst of rounds, and started again.
behind ,restart bash -c "$(declare -f daemon)
    (for i in \$(seq 8); do sleep 0.1; kill -9 \$(daemon); done) 2>/dev/null & cd $point; for i in \$(seq 400); do mv k\$((i % 300 + 1)) r\$i 2>/dev/null; echo \$i >j\$i; done; wait" || fail "killed daemons: $(cat err)"
(cd twin && for i in $(seq 400); do mv k$((i % 300 + 1)) "r$i" 2>/dev/null; echo "$i" >"j$i"; done)
timeout 60 "$bypath" cache drain "$image" 2>err || fail "drain after killed daemons: $(cat err)"
same 'killed daemons'
# No room there: it is kept, said, and written when there is some.
mkdir small && mount -t tmpfs -o size=400k small small && mkdir small/low && cp -a low/l small/low/
mv low big && ln -s small/low low && rm -f c.img
timeout 60 "$bypath" run --no-fuse --mount "fuse:bindfs -f $PWD/low @:$point,cache=$image:64M,sync=image" -- bash -c "head -c 600000 /dev/zero | tr '\0' x >$point/large; echo small >$point/little" 2>err
grep -q 'No space left' err || fail "no room: $(cat err)"
timeout 60 "$bypath" cache drain "$image" 2>err && fail 'drained without room'
mount -o remount,size=4M small
timeout 60 "$bypath" cache drain "$image" 2>err || fail "drain with room: $(cat err)"
[ "$(stat -c %s low/large)" = 600000 ] && [ "$(cat low/little)" = small ] || fail "after no room: $(ls -l low)"
# Another's file in the place of ours.
behind ,sync=image bash -c "ls $point >/dev/null; echo ours >$point/both; echo theirs >low/both" || fail "others: $(cat err)"
[ "$(cat low/both)" = ours ] && [ "$(cat low/both.bypath-theirs)" = theirs ] || fail "another's file: $(ls -l low)"
timeout 20 "$bypath" run --no-fuse --mount "fuse:bindfs -f $PWD/low @:$point,cache=$image,sync=journal" -- true 2>err && fail 'a journal before a daemon'
grep -q "unknown option 'sync=journal'; use one of sync=backend, sync=image" err || fail "a journal: $(cat err)"
[ $failed -eq 0 ] && echo fine
exit $failed
