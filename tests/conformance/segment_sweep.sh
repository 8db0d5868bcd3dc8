#!/bin/bash
# Whoever makes a segment looks for those that nobody needs. Shows that he opens nothing that others have laid in the
# directory: neither a FIFO with a segment's name, nor a FIFO that such a file calls its image; and that a user who may
# only read an image, and holds the lock on it, keeps others waiting for a while at most.
# own
# needs: setpriv
# seconds: 100
set -u
. "$(dirname "$0")/own.sh"
for_all
try() {
    rm -f r.img
    timeout 10 $bypath mkfs r.img --size 16M >/dev/null || fail "$1: mkfs"
    timeout 10 $bypath run --no-fuse --mount "$PWD/r.img:$PWD/m" -- true || fail "$1: run"
}
mkdir -m 1777 seg
mkdir m
export BYPATH_SEGMENT_DIR=$PWD/seg
try "nothing laid"

user mkfifo -m 666 seg/bypath-0123456789abcdef
try "a FIFO with a segment's name"

# A real segment, of a session that is there, with another path as its image's.
user mkfifo -m 666 seg/fifo
mkfifo hold
$bypath mkfs live.img --size 16M >/dev/null
$bypath run --no-fuse --mount "$PWD/live.img:$PWD/m" -- sh -c ': >ready; cat hold' &
wait_until test -e ready || fail "no session"
live=$(ls seg | grep -E '^bypath-[0-9a-f]{16}$' | grep -v 0123456789abcdef)
head -c 1M "seg/$live" >fake && printf '%s\0' "$PWD/seg/fifo" | dd of=fake bs=4096 oflag=seek_bytes seek=3072 conv=notrunc status=none ||
    fail "no fake segment"
chmod 644 fake
user cp fake seg/bypath-00000000000000aa || fail "the user can't lay a file"
# The same, as if it were root's own, which others may write.
cp fake seg/bypath-00000000000000ab && chmod 666 seg/bypath-00000000000000ab
try "fake segments that name a FIFO as their image"
[ -e seg/bypath-00000000000000aa ] || fail "another's file was taken away"
[ -e "seg/$live" ] || fail "the segment of a living session was taken away"
# What is root's own alone is looked at; a FIFO is not the image that it served.
chmod 644 seg/bypath-00000000000000ab
try "a fake segment of root's own"
[ ! -e seg/bypath-00000000000000ab ] || fail "what is nobody's stays"
: >hold
wait

chmod 644 r.img
user flock -x r.img sleep 60 &
wait_until sh -c '! flock -n r.img true'
timeout 50 $bypath info r.img >out 2>&1
code=$?
kill $(jobs -p) 2>/dev/null
[ $code -eq 1 ] && grep -q flock out || fail "a lock that is held: exit code $code, $(cat out)"
exit 0
