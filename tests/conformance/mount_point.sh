#!/bin/bash
# own
# What lies at a mount point without a kernel mount is never taken for files of the mount: it must be empty, or nothing,
# and an empty one is covered for the session's programs by one in which nothing can be made.
set -u
. "$(dirname "$0")/own.sh"
"$bypath" mkfs i --size 64M >/dev/null && mkdir full empty data d && echo mine >full/precious && echo there >data/f || exit 1
for spec in i:$PWD/full i:$PWD/full,ro "host:$PWD/data:$PWD/full"; do
    for option in '' --no-fuse; do
        said=$("$bypath" run $option -m "$spec" -- sh -c "echo ran; rm $PWD/full/precious" 2>&1) && failed=1
        same "$spec $option" "$(echo "$said" | grep -c 'not empty')$(echo "$said" | wc -l)" 11
    done
done
same 'it is still there' "$(cat full/precious)" mine
# The same files at their own path.
same 'a directory where it is' "$("$bypath" run -m "host:$PWD/data:$PWD/data" -- cat "$PWD/data/f")" there
# Covered: for programs without the library, for raw calls, in the session only.
past_program || exit 1
at=$PWD/empty
for spec in "--no-fuse -m i:$at" "-m host:$PWD/data:$at"; do
    # shellcheck disable=SC2086
    said=$("$bypath" run $spec -- sh -c "cd $at && echo y >g && echo *g; $PWD/past make $at/x; $PWD/past remove $at/g" 2>&1)
    same "covered: $spec" "$(echo "$said" | grep -v ^bypath:)" $'g\npast -30\npast -30'
    same "nothing has come there: $spec" "$(ls -A empty)" ''
    rm -f data/g
done
same 'who stands in it' "$(cd empty && "$bypath" run --no-fuse -m ../i:$at -- ../past make here 2>/dev/null)" 'past -30'
# Mounts of the session's programs are seen outside as before, and theirs inside.
mount --make-shared "$(stat -c %m .)"
"$bypath" run --no-fuse -m i:$at -- sh -c "mkdir $PWD/d/in; echo 1 >go; until [ -e went ]; do sleep 0.01; done; cat $PWD/d/f" >got 2>&1 &
until [ -e go ]; do sleep 0.01; done
same 'not outside' "$(grep -c " $at " /proc/mounts)" 0
mount -t tmpfs x d && echo inside >d/f
echo 1 >went
wait
same 'a mount made outside' "$(cat got)" inside
exit $failed
