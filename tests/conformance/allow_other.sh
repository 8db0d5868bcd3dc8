#!/bin/bash
# own
# Another user in a session of a directory or of a FUSE daemon is refused everything, aloud; with allow_other he may do
# what his ids let him. Nobody else gets at what the session shares.
set -u
. "$(dirname "$0")/own.sh"
chmod 755 . && cp "${bypath%/*}"/libbypath*.so "$bypath" . && bypath=$PWD/bypath || exit 1
mkdir d m && chmod 777 d && echo open >d/open && echo mine >d/mine && chmod 600 d/mine && mkdir d/closed && echo in >d/closed/in && chmod 700 d/closed
other() { echo "setpriv --reuid 65534 --regid 65534 --clear-groups"; }
at=$PWD/m
# Read, write, make, remove; as root and as the other user.
# Each that fails says why, in its words.
cat >does <<'S'
cd /
for call in "cat $1/open" "cat $1/mine" "cat $1/closed/in" "ls $1/closed" "touch $1/$2" "stat -c %u:%F $1/$2" "rm $1/$2" "mkdir $1/dir$2" "rmdir $1/dir$2"; do
    $call 2>&1 | sed 's/.*: //'
done
S
refused=$(for _ in 1 2 3 4 5 6 7 8 9; do echo 'Permission denied'; done)
served=$'open\nPermission denied\nPermission denied\nPermission denied\n65534:regular empty file'
for spec in "host:$PWD/d:$at" "fuse:bindfs -f $PWD/d @:$at" "fuse:bindfs -f $PWD/d @:$at,default_permissions"; do
    case $spec in fuse:*) command -v bindfs >/dev/null || continue ;; esac
    said=$("$bypath" run -m "$spec" -- sh -c "$(other) sh does $at new; $(other) cat $at/open" 2>err)
    same "refused: $spec" "$said" "$refused"
    same "and said once: $spec" "$(grep -c 'the session is another user' err)$(grep -c ^bypath: err)" 11
    said=$("$bypath" run -m "$spec,allow_other" -- sh -c "$(other) sh does $at new; cat $at/mine; sh does $at root | head -5" 2>&1)
    same "served: $spec" "$said" "$served"$'\nmine\nopen\nmine\nin\nin\n0:regular empty file'
    # What it shares cannot be found by those who were not told.
    shared=$("$bypath" run -m "$spec,allow_other" -- sh -c "ls -d /dev/shm/bypath-ledger-*; $(other) find /dev/shm/ -name 'bypath-*' ! -name '*said*' \\( -readable -o -writable \\) -type f" 2>/dev/null)
    same "hidden: $spec" "$(echo "$shared" | wc -l)" 1
    rm -f d/new d/root
done
same 'nothing is left' "$(ls /dev/shm)" ''
same 'nor was anything made underneath' "$(ls -A m)" ''
exit $failed
