#!/bin/bash
# An image names its segment by a token. Shows that a hostile image can name another image's, and a hostile user lay a
# file of that name, and root's sessions neither join nor touch what does not belong to the image.
# own
# needs: setpriv
# seconds: 60
set -u
. "$(dirname "$0")/own.sh"
for_all
# The volatile header is at 0x3000: boot id, device and inode number, token, generation, inode number of the segment.
word() { echo "0x$(od -An -tx8 -j $(($2)) -N8 "$1" | tr -d ' ')"; }
put() {
    local byte text=
    for byte in 0 1 2 3 4 5 6 7; do text+=$(printf '\\x%02x' $(($3 >> 8 * byte & 255))); done
    printf "$text" | dd of="$1" bs=8 oflag=seek_bytes seek=$(($2)) conv=notrunc status=none
}
segment() { printf '/dev/shm/bypath-%016x' "$(word "$1" 0x3020)"; }

mkdir -m 777 u m
chmod 755 .
$bypath mkfs v.img --size 64M >/dev/null && chmod 600 v.img && user "$bypath" mkfs "$PWD/u/evil.img" --size 64M >/dev/null || fail "mkfs"
mkfifo hold
$bypath run --no-fuse --mount "$PWD/v.img:$PWD/m" -- sh -c "echo secret >m/s; : >ready; cat hold" &
wait_until test -e ready || fail "no session"
seg=$(segment v.img)
[ -e "$seg" ] || fail "the victim has no segment"
before=$(stat -c '%i %s %a %U' "$seg")

# As the hostile image is attached once, its header is of this boot and file; then it names the victim's.
user "$bypath" info "$PWD/u/evil.img" >/dev/null || fail "info as the user"
name_victim() {
    put "$PWD/u/evil.img" 0x3020 "$(word v.img 0x3020)"
    put "$PWD/u/evil.img" 0x3028 "$(word v.img 0x3028)"
    put "$PWD/u/evil.img" 0x3030 "$(word v.img 0x3030)"
    put "$PWD/u/evil.img" 0x2000 "$(word v.img 0x2000)"
}
name_victim
timeout 10 $bypath info u/evil.img | grep -q '^users *none' || fail "root's info of the hostile image shows the victim's users"
[ "$(stat -c '%i %s %a %U' "$seg")" = "$before" ] || fail "info took the victim's segment away"
name_victim
timeout 10 $bypath run --no-fuse --mount "$PWD/u/evil.img:$PWD/m" -- sh -c "echo x >m/x; mkdir m/d; ! cat m/s" 2>/dev/null ||
    fail "root's session on the hostile image does not work, or shows the victim's files"
[ "$(stat -c '%i %s %a %U' "$seg")" = "$before" ] || fail "a session took the victim's segment away"
timeout 10 $bypath run --no-fuse --mount "$PWD/v.img:$PWD/m" -- sh -c "grep -q secret m/s && ! ls m/x 2>/dev/null && echo new >m/n" ||
    fail "the victim is not what it was"
timeout 10 $bypath info v.img | grep '^users' | grep -qv none || fail "the victim's users are not seen"

# The session ends, and its segment with it; the user lays a copy of it there, which the image even names.
cp --sparse=always "$seg" laid || fail "cp"
token=$(word v.img 0x3020) generation=$(word v.img 0x3028)
: >hold
wait
[ ! -e "$seg" ] || fail "the segment outlives its session"
chmod 666 laid
user cp --sparse=always laid "$seg" && user chmod 666 "$seg" || fail "the user can't lay a file"
sum=$(head -c 4M "$seg" | cksum)
put v.img 0x3028 "$generation" && put v.img 0x3030 "$(stat -c %i "$seg")" && put v.img 0x3020 "$token"
put v.img 0x2000 "$generation"
timeout 10 $bypath run --no-fuse --mount "$PWD/v.img:$PWD/m" -- sh -c "! grep -q $(basename "$seg") /proc/self/maps && cat m/s >/dev/null" ||
    fail "root's session maps what the user has laid"
[ "$(head -c 4M "$seg" | cksum)" = "$sum" ] || fail "what the user has laid was written to"
rm "$seg"

# A FIFO there, which would keep whoever opens it.
mkfifo -m 666 "$seg"
put v.img 0x3030 "$(stat -c %i "$seg")" && put v.img 0x3020 "$token"
timeout 10 $bypath info v.img >/dev/null || fail "a FIFO at the segment's name"
rm "$seg"
for image in v.img u/evil.img; do $bypath check $image >/dev/null || fail "$image is damaged"; done
