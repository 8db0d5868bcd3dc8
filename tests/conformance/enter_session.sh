#!/bin/bash
# `bypath enter` starts a program in a session that runs, named by its number, its image or its directory, with the same
# files; and does not guess where there are several.
# own
# seconds: 60
set -u
. "$(dirname "$0")/own.sh"
failed=0
mkdir -m 1777 seg a b
export BYPATH_SEGMENT_DIR=$PWD/seg
$bypath mkfs i --size 64M >/dev/null || fail mkfs
session() { # NAME SPEC
    $bypath run --no-fuse --mount "$2:$PWD/$1" -- sh -c "echo $1 >$1/file; : >ready.$1; while [ ! -e end.$1 ]; do sleep 0.05; done; cat $1/said" >out.$1 &
    wait_until test -e ready.$1 || fail "session $1 does not start"
}
session a i
first=$!
same "the only one of this directory" "$(timeout 20 $bypath enter "$PWD/a" -- cat a/file)" a
same "by its number" "$(timeout 20 $bypath enter $first -- sh -c 'cat a/file; echo entered >a/said')" a
same "by its image" "$(timeout 20 $bypath enter i -- cat a/said)" entered
session b new:16M
same "the other one" "$(timeout 20 $bypath enter "$PWD/b" -- sh -c 'cat b/file; echo too >b/said; cat a/file 2>/dev/null')" b
same "exit code" "$(timeout 20 $bypath enter $first -- sh -c 'exit 7'; echo $?)" 7
same "a program that is not there" "$(timeout 20 $bypath enter $first -- no-such-program 2>/dev/null; echo $?)" 127
timeout 20 $bypath enter "$PWD/none" -- true 2>err && fail "a session that is not there was entered"
grep -q -- --list err || fail "it does not say where to look: $(cat err)"
$bypath enter --list >list
grep -q "^$first (sh: $PWD/i at $PWD/a)" list && grep -q " at $PWD/b)" list || fail "the list: $(cat list)"
$bypath enter --list --json | python3 -c 'import json, sys; assert len(json.load(sys.stdin)) >= 2' || fail "--json"
: >end.a
: >end.b
wait
same "what the sessions see of it" "$(cat out.a out.b)" "$(printf 'entered\ntoo')"
exit $failed
