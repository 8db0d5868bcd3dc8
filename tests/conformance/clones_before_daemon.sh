#!/bin/bash
# own
# needs: bindfs diff
# seconds: 60
# Before a daemon's cache (`fuse:…,cache=`) programs clone as in any image, by FICLONE and longer copies, and what is behind the
# daemon gets copies: the same work in a plain directory leaves the same. `bypath clone`, which is none of the session's programs
# with a daemon, says so and changes nothing.
set -u
. "$(dirname "$0")/own.sh"
failed=0
mkdir m
run() { timeout 50 "$bypath" run --no-fuse --mount "fuse:bindfs -f $work/low @:$work/m,cache=$work/c.img:64M" -- "$@"; }
cat >fill.sh <<'S'
mkdir -p "$1/d/sub" && cd "$1/d" && seq 200000 >large && seq 100 >small && for i in $(seq 30); do seq $((i * 300)) >sub/n$i; done
truncate -s 2M holes && seq 9000 | dd of=holes bs=4096 seek=100 conv=notrunc status=none
S
# work HOW: clones, then writes into clones and originals.
cat >work.sh <<'S'
set -e
cp -r --reflink=$1 d c1
cp -r --reflink=$1 c1 c2
cp --reflink=$1 d/large single
echo original | dd of=d/large bs=1 seek=5000 conv=notrunc status=none
echo clone | dd of=c1/large bs=1 seek=70000 conv=notrunc status=none
echo more >>c2/large
truncate -s 4097 c1/holes
truncate -s 100 d/holes
rm c2/sub/n7 d/sub/n8
mv c1/sub/n1 c2/n1
rm -r c1/sub
S
sh fill.sh low && sh fill.sh plain && (cd plain && bash ../work.sh never) || fail fill
run bash -c "cd m && cat d/large d/holes >/dev/null && bash ../work.sh always" || fail session
diff -r plain low || failed=1
run bash -c 'cat m/c1/large m/single' | cmp - <(cat plain/c1/large plain/single) || failed=1
# They share meanwhile: eight clones of a file are one.
run bash -c 'cd m && for i in 1 2 3 4 5 6 7 8; do cp --reflink=always d/large s$i || exit 1; done; "$1" info --json "$2"' bash "$bypath" "$work/c.img" >said || failed=1
sed -n 's/.*"saved": \([0-9]*\).*/\1/p' said | (read -r saved && [ "$saved" -ge 9000000 ]) || { cat said && failed=1; }
run bash -c '"$1" clone -q m/d m/e' bash "$bypath" 2>said && { echo 'bypath clone went through' && failed=1; }
[ -s said ] && [ ! -e low/e ] || { echo 'no word of why' && failed=1; }
"$bypath" check c.img >checked || { cat checked && failed=1; }
exit $failed
