#!/bin/bash
# own
# seconds: 120
# needs: inotifywait
# Programs that watch across a cache: one of the session hears what another program changes in the directory, and one outside that
# watches the directory hears what the session has changed. Method: each change is made alone; then its event is waited for.
. "$(dirname "$0")/own.sh"
low=$PWD/low at=$PWD/at image=$PWD/c.img
mkdir -p low/d/e at && echo first >low/d/f && echo second >low/d/g
heard() { # LINE: of the watcher's
    wait_until grep -qxF "$1" said || fail "not heard: $1; but: $(cat said)"
    : >said
}
run() { timeout 100 "$bypath" run --no-fuse --mount "host:$low:$at,cache=$image:64M" -- "$@"; }

# In the session.
: >said
run bash -c 'cd "$1" && cat d/f >/dev/null && inotifywait -q -m -r -e create,modify,close_write,attrib,delete,delete_self --format "%w%f %e" . >>"$2/said" 2>"$2/err" &
    watcher=$!; until [ -e "$2/over" ]; do sleep 0.05; done; kill $watcher' bash "$at" "$PWD" &
session=$!
wait_until test -s "$image"
# Whether it watches is seen by what it hears.
ready() { touch low/d/e && touch low/d/e/sign && grep -q . said; }
wait_until ready
sleep 0.3
: >said
echo new >low/d/new
heard './d/new CREATE'
echo more >>low/d/f
heard './d/f CLOSE_WRITE,CLOSE'
echo other >low/d/.x && mv low/d/.x low/d/g
heard './d/g MODIFY'
chmod 600 low/d/f
heard './d/f ATTRIB'
rm low/d/new
heard './d/new DELETE'
mkdir low/d/sub
heard './d/sub CREATE,ISDIR'
mv low/d/f low/d/e/moved
heard './d/e/moved CREATE'
rm -r low/d/e
heard './d/e DELETE,ISDIR'
touch over
wait $session || fail "the session: $(cat err)"

# Outside.
inotifywait -q -m -r -e create,modify,close_write,moved_from,moved_to,delete --format '%w%f %e' low >>said 2>err &
watcher=$!
trap 'kill $watcher 2>/dev/null' EXIT
ready() { touch low/d/g && echo >low/d/g && grep -q . said; }
wait_until ready
: >said
run bash -c 'cd "$1/d"; echo made >made; sync .; echo more >>g; sync g; mv g away; sync .; rm away; mkdir dir; sync .' bash "$at" || fail 'the second session'
for line in 'low/d/made MOVED_TO' 'low/d/g MODIFY' 'low/d/g CLOSE_WRITE,CLOSE' 'low/d/g MOVED_FROM' 'low/d/away MOVED_TO' 'low/d/away MOVED_FROM' 'low/d/dir MOVED_TO,ISDIR'; do
    wait_until grep -qxF "$line" said || fail "not heard outside: $line; but: $(cat said)"
done
exit $failed
