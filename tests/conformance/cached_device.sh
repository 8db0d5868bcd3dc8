#!/bin/bash
# own
# needs: fuser
# seconds: 240
# A cache knows its file system again though the device has another number, as after a reboot, and by that number alone it
# takes none for it: what was changed and not written yet is written, what is here is not brought again. Method: the same
# file system by another loop device; then another one, in the same place by the device of the first. (Where there is no
# program to make one, or no loop device, it says so.)
. "$(dirname "$0")/own.sh"
low=$PWD/low image=$PWD/c.img
mkdir -p low at
loops() { losetup -f --show "$1" 2>/dev/null; }
number() { stat -c %d low; }
let_go() { umount low && losetup -d "$loop"; }
run() { # OPTIONS COMMAND…
    local options=$1
    shift
    timeout 60 "$bypath" run --no-fuse --mount "host:$low:$PWD/at,cache=$image:64M$options" -- "$@"
}
trap 'umount -l low 2>/dev/null; losetup -d "$loop" "$other" 2>/dev/null; end' EXIT
for kind in ext4 xfs btrfs; do
    command -v "mkfs.$kind" >/dev/null || { echo "skip: no mkfs.$kind: it is NOT tested" && continue; }
    rm -f one two && truncate -s 400M one two && truncate -s 1M fill && "mkfs.$kind" -q one && "mkfs.$kind" -q two || fail "mkfs.$kind"
    loop=$(loops one) && [ -n "$loop" ] || { echo 'skip: no loop device: NOT tested' && exit 0; }
    rm -f c.img* && mount "$loop" low 2>/dev/null || { echo "skip: $kind is not mounted here: NOT tested" && losetup -d "$loop" && continue; }
    mkdir -p low/d/e && echo one >low/f && echo deep >low/d/e/g && ln low/f low/d/hard && ln -s f low/l && seq 50000 >low/big
    first=$(number)
    run '' bash -c 'cd "$1" && cat f d/e/g big >/dev/null && stat -c "%n %i %h" f d/e/g d' bash "$PWD/at" >before 2>err
    # Changed, and not written: who would do it is stopped, and killed.
    { run ,sync=image bash -c '
        kill -STOP $PPID; cd "$1" && echo changed >f && echo new >d/new && mv d/e moved && rm l
        for id in $(pgrep -f "^[^ ]*bypath .*$2"); do [ "$id" = $PPID ] || kill -9 "$id"; done; kill -9 $PPID' bash "$PWD/at" "$image"; } >/dev/null 2>&1
    unused() { ! fuser "$image" >/dev/null 2>&1; }
    wait_until unused || fail "$kind: somebody uses the image still"
    same "$kind: not written" "$(cat low/f)" one
    let_go
    other=$(loops fill) && loop=$(loops one) && [ -n "$loop" ] && mount "$loop" low || fail "$kind: no second loop device"
    [ "$kind" = btrfs ] || [ "$(number)" != "$first" ] || fail "$kind: the device has the same number again"
    run '' bash -c 'cd "$1" && cat f d/new moved/g && stat -c "%n %i %h" f moved/g d; ls . d | grep -v lost+found; stat -c %i d/hard' bash "$PWD/at" >after 2>err
    sed 's/d\/e/moved/; s/^\(d .*\) 3/\1 2/' before >wanted.stat
    same "$kind: what was changed" "$(cat after; grep -v 'writing back what' err)" "$(printf 'changed\nnew\ndeep\n'; cat wanted.stat; printf '.:\nbig\nd\nf\nmoved\n\nd:\nhard\nnew\n'; sed -n 's/^f \([0-9]*\).*/\1/p' before)"
    same "$kind: below" "$(cd low && cat f d/hard d/new moved/g; ls -A | grep -v lost+found | tr '\n' ' ')" $'changed\nchanged\nnew\ndeep\nbig d f moved '
    "$bypath" check "$image" >/dev/null || { echo "$kind: check" && failed=1; }
    # What was read before is here still: nothing of it is asked for below.
    run ',actimeo=max' bash -c 'cat "$1/big" >/dev/null; "$2" stats --json' bash "$PWD/at" "$bypath" >stats 2>&1
    same "$kind: brought again" "$(grep -o '"fetched_bytes": *[0-9]*' stats | grep -o '[0-9]*$')" 0
    # Another file system by the device of the first.
    let_go && losetup -d "$other" && loop=$(loops two) && mount "$loop" low
    mkdir -p low/d/e && echo theirs >low/f
    run '' cat "$PWD/at/f" >got 2>&1 && { echo "$kind: another file system was taken for it: $(cat got)" && failed=1; }
    grep -q 'is the cache of' got || { echo "$kind: $(cat got)" && failed=1; }
    same "$kind: theirs" "$(cat low/f)" theirs
    let_go
done
exit $failed
