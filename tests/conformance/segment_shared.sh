#!/bin/bash
# Several users share an image: by its group, by a mode for everybody, root on a user's image, a user on an image that
# another user's session made the segment of; from other mount and PID namespaces, by another path. All see one tree.
# A copy of an image in use has its own. An image below an overlay that uses it is refused, not damaged.
# own
# needs: setpriv
# seconds: 100
set -u
. "$(dirname "$0")/own.sh"
for_all
as() { setpriv --reuid "$1" --regid "$1" --groups 3000 "${@:2}"; }
chmod 777 .
mkdir -m 777 m other
# session IMAGE USER: one that stays until its end is asked for.
session() {
    rm -f hold ready && mkfifo -m 666 hold
    as "$2" "$bypath" run --no-fuse --mount "$PWD/$1:$PWD/m" -- sh -c "echo $2 >m/$2; : >ready; cat hold" &
    wait_until test -e ready || fail "no session of $2 on $1: $(stat -c '%A %U %G' "$1")"
}
over() { : >hold && wait; }
# sees IMAGE USER NAME: joins the session, reads what is there and adds a file.
sees() { as "$2" timeout 20 "$bypath" run --no-fuse --mount "$PWD/$1:$PWD/m" -- sh -c "test -s m/$3 && : >m/by-$2-$3" || fail "$2 beside $3 on $1"; }
seen() { as "$2" timeout 20 "$bypath" run --no-fuse --mount "$PWD/$1:$PWD/m" -- test -e "m/$3" || fail "$2 does not see $3 on $1"; }

# Of a group: the first is not the owner.
as 2001 "$bypath" mkfs "$PWD/group.img" --size 64M >/dev/null && chgrp 3000 group.img && chmod 660 group.img || fail mkfs
as 2001 "$bypath" run --no-fuse --mount "$PWD/group.img:$PWD/m" -- chmod 1777 m || fail "chmod"
session group.img 2002
sees group.img 2001 2002
sees group.img 2003 2002
sees group.img 0 2002
seen group.img 2002 by-2003-2002
setpriv --reuid 2004 --regid 2004 --clear-groups timeout 20 "$bypath" run --no-fuse --mount "$PWD/group.img:$PWD/m" -- true 2>/dev/null &&
    fail "somebody of no group"
over

# For everybody; after that the mode is narrower while a session lasts.
as 2001 "$bypath" mkfs "$PWD/all.img" --size 64M >/dev/null && chmod 666 all.img || fail mkfs
as 2001 "$bypath" run --no-fuse --mount "$PWD/all.img:$PWD/m" -- chmod 1777 m || fail "chmod"
session all.img 2002
sees all.img 2001 2002
sees all.img 2003 2002
sees all.img 0 2002
over
session all.img 2001
chmod 600 all.img
sees all.img 2001 2001
sees all.img 0 2001
[ -z "$(find /dev/shm -name 'bypath-*' -type f -perm /077)" ] || fail "a segment that is wider than its image"
over

# Root first, on the user's; then he.
session all.img 0
sees all.img 2001 0
# In another mount namespace and another PID namespace, by a bind mount of the file at another path.
: >other/x
unshare -m --propagation private --pid --fork sh -c "mount --bind $PWD/all.img other/x &&
    timeout 20 $bypath run --no-fuse --mount $PWD/other/x:$PWD/m -- sh -c 'test -s m/0 && : >m/bound'" || fail "by another path"
seen all.img 2001 bound
# A copy goes its own way.
cp --sparse=always all.img copy.img
timeout 20 $bypath run --no-fuse --mount "$PWD/copy.img:$PWD/m" -- sh -c 'rm m/0; : >m/copy' || fail "a copy"
seen all.img 0 0
$bypath run --no-fuse --mount "$PWD/all.img:$PWD/m" -- test -e m/copy && fail "the copy's file in the image"
over
for image in group.img all.img copy.img; do $bypath check $image >/dev/null || fail "$image is damaged"; done

# In an overlay a file has another device number.
mkdir -p layers/upper layers/work layers/lower merged
mount -t overlay overlay -o "lowerdir=layers/lower,upperdir=layers/upper,workdir=layers/work" merged 2>/dev/null || exit 0
$bypath mkfs merged/i --size 64M >/dev/null && cp --sparse=always merged/i other/i || fail "mkfs in an overlay"
session merged/i 0
sees merged/i 0 0
timeout 20 $bypath run --no-fuse --mount "$PWD/layers/upper/i:$PWD/m" -- true 2>err && fail "below an overlay that uses it"
grep -q 'device number' err || fail "below an overlay: $(cat err)"
sees merged/i 0 0
over
timeout 20 $bypath run --no-fuse --mount "$PWD/layers/upper/i:$PWD/m" -- test -s m/0 || fail "after the overlay's session"
$bypath check merged/i >/dev/null || fail "the overlay's image is damaged"
umount merged
