#!/bin/bash
# own
# seconds: 120
# Programs that go on after `bypath run` behind a cache: what they change is written to the directory, their fsync returns,
# and when the last has ended nothing is left. A cache that the session has made for itself stays for as long. Method: a program
# in the background that changes something once the session has ended.
. "$(dirname "$0")/own.sh"
low=$PWD/low
export TMPDIR=$PWD/tmp
mkdir -p low tmp
disk=$(mktemp -d /var/tmp/bypath-goes-on.XXXXXX) && trap 'rm -rf "$disk"' EXIT
quiet() { ! grep -q " $low " /proc/mounts && [ ! -e low/.bypath-cache ] && [ -z "$(ls tmp)" ]; }
later() { # POINT OPTIONS… : the program, which begins when the session has ended
    local point=$1
    shift
    rm -rf low/* && echo below >low/old && rm -f go
    timeout 60 "$bypath" run "$@" -- bash -c '
        (until [ -e "$2/go" ]; do sleep 0.05; done
        cd "$1" && echo new >made && timeout 30 sync made && mv old moved && sh -c "cat moved" && echo synced) >"$2/out" 2>&1 &
        exec true' bash "$point" "$PWD" 2>err || fail "the session ($*): $(cat err)"
    touch go
}
for source in cache cache=:64M cache="$PWD/c.img:64M" cache="$PWD/j.img:64M,sync=journal,journal=$disk/j" cache="$PWD/m.img:64M,sync=image"; do
    for way in '--no-fuse' ''; do
        [ -n "$way" ] || [ -e /dev/fuse ] || continue
        later "$low" $way --mount "host:$low:$low,$source"
        wait_until grep -q synced out
        wait_until test -e low/moved
        same "$source $way: the program" "$(cat out)" $'below\nsynced'
        wait_until quiet
        quiet || fail "$source $way: left: $(ls -d low/.bypath-* tmp/* 2>&1)"
        same "$source $way: below" "$(cd low && echo * && cat made)" $'made moved\nnew'
    done
done

# Another cache meanwhile is refused by the name of the one that is there.
if [ -e /dev/fuse ]; then
    rm -f go
    "$bypath" run --mount "host:$low:$low,cache=$PWD/c.img" -- sh -c "(until [ -e $PWD/go ]; do sleep 0.05; done) & true"
    "$bypath" run --mount "host:$low:$low,cache=$PWD/m.img" -- true 2>err && fail 'a second cache was allowed'
    grep -q "join with cache=$PWD/c.img" err || fail "another: $(cat err)"
    touch go
    wait_until quiet
fi

# Killed, with all its programs: what is in the cache is written, and the cache goes.
"$bypath" run --no-fuse --mount "host:$low:/bp,cache" -- sh -c 'echo kept >/bp/kept; kill -9 $PPID; kill -9 $$' 2>err
wait_until test -s low/kept
wait_until quiet
quiet || fail "killed: left: $(ls -d low/.bypath-* tmp/*)"
same 'killed: below' "$(cat low/kept)" kept

# What is left in it on purpose keeps it; `clean` names it, and `drain` removes it in the end.
"$bypath" run --leave --no-fuse --mount "host:$low:/bp,cache,sync=image" -- sh -c 'echo mine >/bp/mine' 2>err
[ -n "$(ls tmp)" ] || fail "a cache with changes has gone: $(cat err)"
touch -d '2 hours ago' tmp/*
"$bypath" clean >said 2>&1
grep -q 'cache drain' said || fail "clean: $(cat said)"
"$bypath" cache drain tmp/*/cache.img || fail 'drain'
same 'drained' "$(cat low/mine) $(ls tmp)" 'mine '
exit ${failed:-0}
