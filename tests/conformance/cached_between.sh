#!/bin/bash
# own
# seconds: 120
# What changes in a directory between two sessions with its cache is seen by the first program of the second one, whatever the
# cache holds: contents, names that were listed, directories that a session has made, names that came while its last round was
# under way. Method: each session reads all; by another program the
# directory is changed in between, at once and in place.
. "$(dirname "$0")/own.sh"
low=$PWD/low at=$PWD/at image=$PWD/c.img
run() { # COMMAND…, in the mount
    timeout 60 "$bypath" run $way --mount "host:$low:$at,cache=$image:64M" -- bash -c 'cd "$1" && shift && eval "$*"' bash "$at" "$@"
}
all='find . -mindepth 1 ! -name ".bypath-*" -printf "%P %y %m %s\n" | sort; find . -type f ! -name ".bypath-*" | sort | xargs cat'
below() { (cd low && eval "$all"); }
for way in '--no-fuse' ''; do
    [ -n "$way" ] || [ -e /dev/fuse ] || continue
    rm -rf low c.img && mkdir -p low/d/e at && echo one >low/d/f && echo two >low/d/e/g && echo three >low/h
    run "$all; mkdir -p made/in; echo own >made/f; echo own >made/in/f" >got || fail "the first session ($way)"
    # Nothing of it takes longer than a tick of the clock.
    echo ONE >low/d/f; mv low/d/e low/e; echo new >low/d/new; rm low/h; echo theirs >low/made/in/g; echo OWN >low/made/f
    same "the second session ($way)" "$(run "$all")" "$(below)"
    for i in 1 2 3 4 5; do
        run "echo $i >made/own$i; mkdir made/dir$i; sync . & for j in 1 2 3 4 5 6; do echo theirs >$low/made/t$i.\$j; done; wait" || fail "a session ($way)"
        echo "$i" >"low/made/dir$i/t"
        same "after session $i ($way)" "$(run "$all")" "$(below)"
    done
    "$bypath" check "$image" >/dev/null || fail "check ($way)"
done
exit $failed
