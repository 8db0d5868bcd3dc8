#!/bin/bash
# An image of a session's own (new:SIZE) is there for all its programs, and gone with it, however it ends; what a killed
# session has left `bypath clean` takes away.
# own
# seconds: 60
set -u
. "$(dirname "$0")/own.sh"
failed=0
mkdir -m 1777 seg m
export BYPATH_SEGMENT_DIR=$PWD/seg
left() { ls seg | grep -c new-; }
got=$(timeout 20 $bypath run --no-fuse --mount "new:64M:$PWD/m" -- sh -c 'echo text >m/file && cp m/file m/other && cat m/other')
same "what a session's image holds" "$got" text
same "left by a session that ended" "$(left)" 0
timeout 20 $bypath run --no-fuse --mount "new:64M:$PWD/m" --mount "new:16M:$PWD/n" -- sh -c 'test ! -e m/file && echo x >n/x && test ! -e m/x' ||
    fail "two of them are not two"
$bypath run --no-fuse --mount "new:1M:$PWD/m" -- true 2>err && fail "one that is too small was made"
same "lines about it" "$(wc -l <err)" 1

$bypath run --no-fuse --mount "new:64M:$PWD/m" -- sh -c ': >ready; exec sleep 1000' &
run=$!
wait_until test -e ready || fail "no session"
program=$(pgrep -P $run)
$bypath clean >out || fail clean
same "left while it runs" "$(left)" 1
kill -9 $run $program
wait $run 2>/dev/null
same "left by one that was killed" "$(left)" 1
touch -d '2 minutes ago' seg/*
$bypath clean --json >out || fail "clean --json"
grep -q new- out || fail "clean does not say what it took away: $(cat out)"
same "left after clean" "$(left)" 0
exit $failed
