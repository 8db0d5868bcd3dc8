#!/bin/bash
# own
# seconds: 120
# Goal: with linger= a process keeps the cache fresh when the session has ended: the next session sees what others have changed
# meanwhile, at once, and writes back as any; `mounts` lists the process; it ends by `umount`, `clean`, `cache drain`, after its
# time, and when it is killed nothing is lost. Method: sessions one after the other, and changes below between them.
. "$(dirname "$0")/own.sh"
low=$PWD/low image=$PWD/c.img
mkdir -p low/d at && echo first >low/d/f
spec="host:$low:$PWD/at,cache=$image:64M"
session() { timeout 60 "$bypath" run --no-fuse --mount "$spec,linger=${time:-60}${more:-}" -- "$@" 2>err; }
lingers() { "$bypath" mounts --json 2>/dev/null | grep -q lingers; }
gone() { ! lingers; }
session cat at/d/f >got || fail "first: $(cat err)"
lingers || fail 'nobody keeps it fresh'
"$bypath" mounts | grep -q "$low.*lingers.*$image" || fail "mounts: $("$bypath" mounts 2>&1)"
keeper=$(pgrep -f "cache-spare 0 $image")
[ "$(echo "$keeper" | wc -w)" = 1 ] || fail "not one process: $keeper"
for number in $(seq 20); do
    echo "$number" >low/d/f && echo "$number" >"low/d/n$number" && rm -f "low/d/n$((number - 1))"
    session sh -c 'cat at/d/f; ls at/d; echo "$1" >>at/d/log' sh "$number" >got || fail "session $number: $(cat err)"
    same "session $number" "$(tr '\n' ' ' <got)" "$number f $([ "$number" = 1 ] || echo 'log ')n$number "
    same "session $number: below" "$(tail -1 low/d/log)" "$number"
done
same 'the log' "$(cat low/d/log)" "$(seq 20)"
same 'still the one' "$(pgrep -f "cache-spare 0 $image")" "$keeper"

# Killed: the next session keeps on, and another process does.
kill -9 $keeper && echo killed >low/d/f
ended() { ! kill -0 $keeper 2>/dev/null; }
wait_until ended
session cat at/d/f >got || fail "after a kill: $(cat err)"
same 'after a kill' "$(cat got)" killed
wait_until lingers

# What programs leave to others: a background program of the session, then nobody.
session sh -c '(sleep 0.3; echo later >at/d/later) & true'
wait_until test -e low/d/later

"$bypath" umount "$low" || fail umount
lingers && fail 'umount has not ended it'
session true && lingers || fail 'again'
"$bypath" clean >said && grep -q "$image" said || fail "clean: $(cat said)"
lingers && fail 'clean has not ended it'
session sh -c 'echo drained >at/d/f' && "$bypath" cache drain "$image" || fail drain
lingers && fail 'drain has not ended it'
same drained "$(cat low/d/f)" drained
time=1 session true
lingers || fail 'a second'
wait_until gone
lingers && fail 'its time is over'
[ ! -e low/.bypath-cache ] || fail 'a marker is left'
"$bypath" check "$image" >checked || fail "check: $(cat checked)"

# With a kernel mount over the directory itself.
if [ -e /dev/fuse ]; then
    more= spec="host:$low:$low,cache=$image"
    for number in 1 2 3; do
        timeout 60 "$bypath" run --mount "$spec,linger=60" -- sh -c 'cat "$1/d/f"; echo "$2" >"$1/d/f"' sh "$low" "over $number" >got 2>err || fail "over: $(cat err)"
        same "over $number" "$(cat got)" "$([ $number = 1 ] && echo drained || echo "over $((number - 1))")"
        same "over $number: below" "$(cat low/d/f)" "over $number"
    done
    "$bypath" clean >said
fi
for wrong in "host:$low:/x,cache,linger=5" "host:$low:/x,linger=5" "host:$low:/x,cache=$image,sync=journal,linger=5" "host:$low:/x,cache=$image,linger=0"; do
    "$bypath" run --no-fuse --mount "$wrong" -- true 2>err && fail "taken: $wrong"
    grep -q linger err || fail "$wrong: $(cat err)"
done
exit ${failed:-0}
