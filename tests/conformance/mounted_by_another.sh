#!/bin/bash
# own
# seconds: 120
# A program that can't use the image of its session goes by the kernel's mount where that is the image's own. Anything
# else that is mounted there is not taken for it, be it FUSE or another image.
set -u
failed=0
same() { # WHAT GOT WANTED
    [ "$2" = "$3" ] || { echo "$1: '$2', not '$3'"; failed=1; }
}
[ -c /dev/fuse ] || { echo 'no /dev/fuse here' && exit 0; }
at=$PWD/m
mkdir m d
echo other >d/f
echo image >f
for name in i other; do "$bypath" mkfs $name --size 64M >/dev/null || exit 1; done
"$bypath" import -q f i:/f && "$bypath" import -q d/f other:/f || exit 1
# A session without the kernel's mount and without a cover over its mount point; something is mounted there once it runs,
# and a program comes that can't use the image.
tried() { # MOUNT UNMOUNT
    rm -f ready go
    setpriv --bounding-set -sys_admin "$bypath" run --no-fuse -m "i:$at" -- sh -c \
        "echo >ready; until [ -e go ]; do sleep 0.01; done; mv i i.moved; cat $at/f; touch $at/n; mv i.moved i" >out 2>err &
    until [ -e ready ]; do sleep 0.01; done
    $1 || echo 'it is not mounted'
    echo >go
    wait $!
    $2
}
if command -v bindfs >/dev/null; then
    tried "bindfs d $at" "umount $at"
    same 'bindfs' "$(cat out)$(grep -c 'Stale file handle' err)" 2
    same 'bindfs: nothing is made there' "$(ls d)" f
fi
tried "$bypath mount other $at" "$bypath umount $at"
same 'another image' "$(cat out)$(grep -c 'Stale file handle' err)" 2
same 'another image: nothing is made there' "$("$bypath" ls other:/)" f
tried "$bypath mount i $at" "$bypath umount $at"
same 'the image itself' "$(cat out err)" image
same 'the image itself: it is used' "$("$bypath" ls i:/ | tr '\n' ' ')" 'f n '
# By another name of the directory that the image is in.
ln -s "$PWD" link
tried "$bypath mount $PWD/link/i $at" "$bypath umount $at"
same 'by a symlink' "$(cat out err)" image
exit $failed
