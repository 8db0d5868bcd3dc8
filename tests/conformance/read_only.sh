#!/bin/bash
# own
# `,ro` and `bypath mount -o ro`: nobody changes the image, whichever way he comes; and what is mounted at the directory
# must be that image, as wanted.
set -u
. "$(dirname "$0")/own.sh"
past_program || exit 1
tries() { # DIR: each tries to write, with and past the library
    echo "echo a >$1/w; for what in make append remove stamp; do $PWD/past \$what $1/h; done; cat $1/h"
}
refused() { # how often of $said, by the library and past it
    echo "$(echo "$said" | grep -c 'Read-only file system'),$(echo "$said" | grep -c '^past -30$')"
}
"$bypath" mkfs i --size 64M >/dev/null && mkdir m && echo text >h && "$bypath" import -q h i:/h || exit 1
before=$("$bypath" stat i:/h)
if [ -c /dev/fuse ]; then
    said=$("$bypath" run -m i:$PWD/m,ro -- sh -c "$(tries "$PWD/m")" 2>&1)
    same 'refused' "$(refused)" 1,4
    same 'and read' "$(echo "$said" | grep -c '^text$')" 1
    same 'the mount says so' "$("$bypath" run -m i:$PWD/m,ro -- grep -c " $PWD/m fuse.bypath ro" /proc/mounts)" 1
    "$bypath" mount -o ro i m || exit 1
    said=$(sh -c "$(tries "$PWD/m")" 2>&1)
    same 'by the mount alone' "$(refused)" 1,4
    mount -o remount,rw m 2>/dev/null
    said=$(sh -c "$(tries "$PWD/m")" 2>&1)
    same 'the server itself refuses' "$(refused)" 1,4
    mount -o remount,ro m 2>/dev/null
    said=$("$bypath" run -m i:$PWD/m -- true 2>&1) && failed=1
    same 'for writing beside it' "$(echo "$said" | grep -c 'mounted there read-only')" 1
    said=$("$bypath" run -m i:$PWD/m,ro -- sh -c "$(tries "$PWD/m")" 2>&1)
    same 'a session beside it' "$(refused)" 1,4
    "$bypath" umount m
    "$bypath" mount i m || exit 1
    for option in '' --no-fuse; do
        said=$("$bypath" run $option -m i:$PWD/m,ro -- true 2>&1) && failed=1
        same "read-only at one for writing $option" "$(echo "$said" | grep -c 'mounted there for writing')" 1
        "$bypath" run $option -m i:$PWD/m -- true || failed=1
    done
    # Another image there, even an empty one.
    "$bypath" mkfs j --size 64M >/dev/null
    for option in '' --no-fuse; do
        said=$("$bypath" run $option -m j:$PWD/m -- sh -c "echo >$PWD/m/new" 2>&1) && failed=1
        same "another image $option" "$(echo "$said" | grep -c "$PWD/m: $PWD/i (fuse.bypath) is mounted there, which is not $PWD/j")" 1
    done
    "$bypath" umount m
    "$bypath" mount j m && rm -f m/new && said=$("$bypath" run -m i:$PWD/m -- true 2>&1) && failed=1
    same 'an empty one' "$(echo "$said" | grep -c "which is not $PWD/i")" 1
    said=$("$bypath" run -m host:$PWD:$PWD/m -- true 2>&1) && failed=1
    same 'and a directory' "$(echo "$said" | grep -c "is mounted there, which is not host:")" 1
    "$bypath" umount m
fi
mount -t tmpfs other m
said=$("$bypath" run -m i:$PWD/m -- true 2>&1) && failed=1
same 'anything else' "$(echo "$said" | grep -c 'other (tmpfs) is mounted there')" 1
umount m
"$bypath" run --no-fuse -m i:$PWD/m,ro -- sh -c "echo a >$PWD/m/w; rm $PWD/m/h" >said 2>&1
same 'without a mount' "$(grep -c 'Read-only file system' said)" 2
same 'nothing has changed' "$("$bypath" stat i:/h)" "$before"
same 'nor is there anything new' "$("$bypath" ls i:/)" h
"$bypath" check i >/dev/null || failed=1
exit $failed
