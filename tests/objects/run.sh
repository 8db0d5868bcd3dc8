#!/bin/bash
# A bucket as a directory (docs/reference/objects.md): real programs beside tmpfs, two sessions, a store that fails. The
# store is server.py; with S3=http://HOST:PORT/BUCKET, and keys in the environment, another one, without the faults.
#
#   BYPATH=target/release/bypath run.sh [NAME…]
set -u
export PYTHONDONTWRITEBYTECODE=1
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
tests=$(dirname "$here")
. "$tests/common.sh"
begin objects o "${TMPDIR:-/tmp}"
cd "$work" || exit 2
objects=$(dirname "$bypath")/bypath-objects
if [ ! -x "$objects" ]; then
    echo 'skip objects: bypath-objects is not built: LEFT OUT, not passed'
    exit 0
fi
if ! type -P python3 >/dev/null; then
    echo 'skip objects: python3 is not installed: LEFT OUT, not passed'
    exit 0
fi
store=''
trap '[ -z "$store" ] || kill "$store"; end' EXIT
export AWS_ACCESS_KEY_ID=${AWS_ACCESS_KEY_ID:-key} AWS_SECRET_ACCESS_KEY=${AWS_SECRET_ACCESS_KEY:-secret}
export AWS_EC2_METADATA_DISABLED=true
unset AWS_PROFILE http_proxy HTTP_PROXY
if [ -z "${S3:-}" ]; then
    python3 "$here/server.py" "$work" 2>server.err &
    store=$!
    wait_until test -e port || { echo 'FAIL objects: the store does not start'; cat server.err; exit 1; }
    url=http://127.0.0.1:$(cat port)
    S3=$url/bucket
fi
fail() { echo "FAIL objects, $name: $1"; [ -z "${2:-}" ] || sed 's/^/     /' "$2" | head -20; failed=$((failed + 1)); }
pass() { echo "ok   objects, $name"; }
# session OPTIONS COMMAND…: the bucket is /s3.
session() { local options=$1; shift; timeout -k 5 "${LIMIT:-180}" "$bypath" run --no-fuse --mount "s3:$S3:/s3$options" -- "$@" </dev/null; }
raw() { python3 -c 'import sys, urllib.request as u; u.urlopen(u.Request(sys.argv[1], sys.argv[2].encode(), method="PUT"))' "$url/_raw/$1" "$2"; }

# The same script on tmpfs and in the bucket says the same, and a second session finds what the first has written.
case_programs() {
    local program missing=''
    for program in git rsync sqlite3; do type -P $program >/dev/null || missing="$missing $program"; done
    [ -z "$missing" ] || { echo "skip objects, programs:$missing not installed: LEFT OUT, not passed"; return; }
    mkdir beside
    bash "$here/use.sh" "$work/beside" >beside.out 2>&1 </dev/null
    session '' bash "$here/use.sh" /s3 >in.out 2>in.err || { fail 'the programs fail' in.err; cat in.out; return; }
    cmp -s beside.out in.out || { diff beside.out in.out >what; cat in.err >>what; fail 'differs from tmpfs (<)' what; return; }
    session '' bash "$here/use.sh" /s3 sums >again.out 2>again.err
    cmp -s <(bash "$here/use.sh" "$work/beside" sums) again.out && pass || fail 'another session reads something else' again.err
}

# Two sessions: what is closed is found, and a lost race is ESTALE.
case_two() {
    session '' python3 "$here/two.py" "$bypath" "$S3" >out 2>err && pass || { cat err >>out; fail 'two sessions' out; }
}

# Keys that are no paths are named, and the others are there.
case_keys() {
    [ -n "$store" ] || { echo "skip objects, $name: only with server.py"; return; }
    local key
    for key in odd/a odd/a/b odd//c "odd/$(printf 'n%.0s' $(seq 300))" odd/../d odd/good; do raw "$key" x; done
    session '' sh -c 'ls /s3/odd; cat /s3/odd/good /s3/odd/a/b' >out 2>err
    [ "$(cat out)" = "a
good
xx" ] || { fail 'a listing' out; return; }
    for key in 'odd/a"' 'odd//' 'odd/../' 'odd/nnn'; do
        grep -qF "\"$key" err || { fail "$key is not named" err; return; }
    done
    pass
}

# A directory of more than two pages, and one that is only implied and becomes empty.
case_directories() {
    [ -n "$store" ] || { echo "skip objects, $name: only with server.py"; return; }
    python3 -c '
import sys, urllib.request as u
for n in range(2500): u.urlopen(u.Request("%s/_raw/many/%04d" % (sys.argv[1], n), b"x", method="PUT"))' "$url"
    raw implied/one x
    session '' sh -c 'ls /s3/many | wc -l; cat /s3/many/2499; test ! -e /s3/many/2500; echo $?
        rm /s3/implied/one && rmdir /s3/implied && test ! -e /s3/implied; echo $?
        rm -r /s3/many && test ! -e /s3/many; echo $?' >out 2>err
    [ "$(tr '\n' ' ' <out)" = '2500 x0 0 0 ' ] && pass || { cat err >>out; fail 'counts' out; }
}

# What a store does wrong is an error in time, and nothing is lost silently.
case_faults() {
    [ -n "$store" ] || { echo "skip objects, $name: only with server.py"; return; }
    session ,timeout=2 python3 "$here/faults.py" /s3 "$work" "$url" >out 2>err && pass || { cat err >>out; fail 'a store that fails' out; }
    rm -f fault
}

# A store that answers with intent.
case_hostile() {
    timeout -k 5 400 python3 "$here/hostile.py" "$bypath" >out 2>&1 && pass || fail 'a hostile store' out
}

# What fsync has acknowledged outlives the session, killed; and what a program has left open when it ends is stored.
case_killed() {
    session '' python3 -c '
import os, signal, sys
fd = os.open("/s3/killed", os.O_CREAT | os.O_WRONLY)
os.write(fd, b"synced")
os.fsync(fd)
os.write(open("pids", "wb").fileno(), b"%d" % os.getppid())
os.write(fd, b"and not")
os.kill(os.getppid(), signal.SIGKILL)
os._exit(0)' >out 2>err
    session '' sh -c 'head -c 6 /s3/killed; exec 3>/s3/left; echo left >&3' >out 2>>err
    session '' cat /s3/left >>out 2>>err
    [ "$(cat out)" = 'syncedleft' ] && pass || { cat err >>out; fail 'what was left' out; }
}

# close=later: what is closed is in the store when syncfs says so, a name that was only on its way never is; what fails is told.
case_later() {
    [ -n "$store" ] || { echo "skip objects, $name: only with server.py"; return; }
    session ,timeout=2,close=later python3 "$here/later.py" /s3 "$work" "$url" >out 2>err && pass || { cat err >>out; fail 'close=later' out; }
    rm -f fault
}

# Parts of a large file that were not rewritten are copied by the store.
case_parts() {
    [ -n "$store" ] || { echo "skip objects, $name: only with server.py"; return; }
    session '' python3 "$here/parts.py" /s3 "$url" >out 2>err && pass || { cat err >>out; fail 'parts that are copied' out; }
}

# posix: attributes and symlinks last, by themselves, written later and with a cache.
case_posix() {
    [ -n "$store" ] || { echo "skip objects, $name: only with server.py"; return; }
    local options
    for options in ,posix ,posix,close=later ,posix,cache=:64M; do
        session $options python3 "$here/posix.py" make /s3/posix "$url" >out 2>err || { cat err >>out; fail "$options: making" out; return; }
        session ,posix python3 "$here/posix.py" look /s3/posix "$url" >out 2>err || { cat err >>out; fail "$options: another session" out; return; }
        session '' rm -r /s3/posix
    done
    timeout 60 "$bypath" run --no-fuse --mount 'objects:memory:/b,posix' -- true >out 2>&1 && { fail 'a store without metadata is taken' out; return; }
    grep -q 'keeps no metadata' out && pass || fail 'why it is refused' out
}

# With a cache: the programs as on tmpfs, shared mappings and WAL too, and a session without one finds all that was written.
case_cache() {
    local program
    for program in git rsync sqlite3; do type -P $program >/dev/null || { echo "skip objects, $name: $program is not installed: LEFT OUT, not passed"; return; }; done
    mkdir -p besides
    bash "$here/use.sh" "$work/besides" >besides.out 2>&1 </dev/null
    session ,cache=:256M sh -c 'mkdir /s3/cached && bash "$1" /s3/cached' sh "$here/use.sh" >in.out 2>in.err || { fail 'the programs fail' in.err; cat in.out; return; }
    cmp -s besides.out in.out || { diff besides.out in.out >what; cat in.err >>what; fail 'differs from tmpfs (<)' what; return; }
    grep -q 'cache .*cache.img, 256 MiB at most' in.err || { fail 'its place is not said' in.err; return; }
    session ,cache python3 "$here/mapped.py" /s3/mapped >out 2>err || { cat err >>out; fail 'mmap and WAL' out; return; }
    session '' bash "$here/use.sh" /s3/cached sums >again.out 2>again.err
    session '' md5sum /s3/mapped/file >>again.out 2>>again.err
    cmp -s <(bash "$here/use.sh" "$work/besides" sums; cat out) again.out || { diff again.out out >>again.err; fail 'a session without a cache reads something else' again.err; return; }
    ! ls -d "$(sed -n 's/.*cache \(.*\)\/cache.img.*/\1/p' in.err)" 2>/dev/null || { fail 'its cache is left'; return; }
    # The session is killed: what fsync has acknowledged is stored, the rest lies in the image until it is drained.
    local image=$work/kept.img
    session ",cache=$image" python3 -c '
import os, signal
fd = os.open("/s3/acknowledged", os.O_CREAT | os.O_WRONLY)
os.write(fd, b"synced")
os.fsync(fd)
with open("/s3/in the image", "w") as file: file.write("kept")
os.kill(os.getppid(), signal.SIGKILL)' >out 2>err
    [ "$(session '' cat /s3/acknowledged 2>>err)" = synced ] || { fail 'what was synced is lost' err; return; }
    "$bypath" cache drain "$image" >>err 2>&1 || { fail 'drain' err; return; }
    [ "$(session '' cat '/s3/in the image' 2>>err)" = kept ] && pass || fail 'what was in the image is lost' err
}

# Scripts of tests/programs, on tmpfs and in a bucket with attributes and a cache: output, exit code, and what another session
# without the cache finds, but for what directories are like. Not among the usual cases: it takes a minute or two.
scripts='bash ccache compress dash dd dpkg-deb flock go gzip inotify lmdb m4 make-gcc patch python-venv redirections ruby sqlite3 xargs zip'
case_scripts() {
    local script needed same=0 names=''
    local clean="env -i PATH=$PATH LC_ALL=C TZ=UTC PYTHONDONTWRITEBYTECODE=1 PYTHONHASHSEED=0 AWS_ACCESS_KEY_ID=$AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY=$AWS_SECRET_ACCESS_KEY AWS_EC2_METADATA_DISABLED=true TMPDIR=${TMPDIR:-/tmp}"
    cat >side.sh <<'SIDE'
mkdir -p "$1/tmp" && cd "$1" || exit 99
HOME=$1 TMPDIR=$1/tmp timeout -k 5 180 $(sed -n '1s/^#!//p' "$2") "$2" 2>&1
echo "exit $?"
SIDE
    cat >list.sh <<'LIST'
cd "$1" || exit 99
find . \( -type d -printf '%P %y\n' \) -o -printf '%P %y %m %U %G %l\n' | sort
find . -type f | grep -Ev "$2" | sort | while IFS= read -r file; do cksum "$file"; done
LIST
    for script in ${SCRIPTS:-$scripts}; do
        local file=$tests/programs/$script.sh ignore
        for needed in $(sed -n 's/^# needs: *//p' "$file" | head -1); do
            type -P "$needed" >/dev/null || [ -e "$needed" ] || { echo "skip objects, $script: $needed is not installed: LEFT OUT, not passed"; continue 2; }
        done
        ignore=$(sed -n 's/^# ignore: *//p' "$file" | head -1)
        mkdir -p k
        $clean sh side.sh "$work/k/$script" "$file" 2>&1 </dev/null | sed "s|$work/k/|@|g; s|k/$script|@|g" >k.out
        $clean "$bypath" run --no-fuse --mount "s3:$S3:$work/s,posix,cache" -- sh side.sh "$work/s/$script" "$file" </dev/null 2>err | sed "s|$work/s/|@|g; s|s/$script|@|g" >s.out
        $clean sh list.sh "$work/k/$script" "${ignore:-^$}" >k.list 2>&1
        $clean "$bypath" run --no-fuse --mount "s3:$S3:$work/s,posix" -- sh list.sh "$work/s/$script" "${ignore:-^$}" >s.list 2>>err
        cmp -s k.out s.out || { diff k.out s.out >what; cat err >>what; fail "$script: its output differs" what; continue; }
        cmp -s k.list s.list || { diff k.list s.list >what; cat err >>what; fail "$script: it leaves something else" what; continue; }
        same=$((same + 1)) names="$names $script"
    done
    [ $same -gt 0 ] && pass && echo "     $same scripts:$names"
}

# What can't be mounted says why, at once.
case_refused() {
    local bad
    for bad in "s3:$S3" 's3:http://127.0.0.1:1/bucket:/s3,timeout=1' 's3:nowhere:/s3' "s3:$S3:/s3,spool=/nonexistent"; do
        timeout 60 "$bypath" run --no-fuse --mount "$bad" -- true >out 2>&1 && { fail "$bad is mounted" out; return; }
        grep -q bypath out || { fail "$bad: no message" out; return; }
    done
    pass
}

# A store that cannot be reached is reported by its reason, and not when the time of a request is over.
case_unreachable() {
    local address why
    while read -r address why; do
        timeout 60 "$bypath" run --no-fuse --mount "s3:http://$address/bucket:/s3,timeout=40" -- true >out 2>&1 && { fail "$address is mounted" out; return; }
        grep -q "$why" out && ! grep -q 'no answer within' out || { fail "$address: the reason" out; return; }
    done <<'ADDRESSES'
127.0.0.1:9 cannot be reached: connection refused
no-such-host.invalid cannot be reached: failed to lookup address
ADDRESSES
    pass
}

# A warm cache: with the store away a session begins and has what is in the image; what is not there is EIO, with one line that
# says why. An image that has nothing of the bucket is refused then.
case_warm() {
    local image=$work/warm.img second port what
    mkdir -p away
    python3 "$here/server.py" "$work/away" 2>away.err &
    second=$!
    wait_until test -e away/port || { fail 'the second store does not start' away.err; return; }
    port=$(cat away/port) what=s3:http://127.0.0.1:$port/bucket:/s3,timeout=3
    warm() { timeout -k 5 100 "$bypath" run --no-fuse --mount "$what,cache=$image" -- "$@" </dev/null; }
    warm sh -c 'mkdir /s3/d && echo one >/s3/d/f && seq 100000 >/s3/long' 2>err || fail 'filling' err
    rm "$image"
    warm sh -c 'cat /s3/d/f; ls /s3' >out 2>err || fail 'warming' err
    kill "$second"
    wait "$second" 2>/dev/null
    warm sh -c 'cat /s3/d/f; ls /s3; cat /s3/long' >out 2>err && { fail 'what is not there was read' out; return; }
    [ "$(cat out)" = $'one\nd\nlong' ] || { cat err >>out; fail 'what is in the image' out; return; }
    grep -q 'cannot be reached: connection refused.*what the cache holds' err || { fail 'not reported' err; return; }
    grep -q 'long: Input/output error' err || { fail 'a miss' err; return; }
    # At once: the request does not take its time-out.
    [ "$(grep -c '^bypath: s3:' err)" = 2 ] && grep -q 'out of reach: connection refused' err || { fail 'not one line about a miss' err; return; }
    rm "$image"
    warm true >out 2>&1 && { fail 'an empty cache of a store that is away' out; return; }
    grep -q 'connection refused' out || { fail 'an empty cache: the reason' out; return; }
    pass
}

# Other services: a directory of the kernel's, and memory.
case_services() {
    mkdir root
    timeout 60 "$bypath" run --no-fuse --mount "objects:fs?root=$work/root:/a" --mount 'objects:memory:/b' -- \
        sh -c 'mkdir /a/d && echo one >/a/d/f && cp -r /a/d /b/e && mv /b/e/f /b/g && cat /b/g' >out 2>err
    [ "$(cat out)" = one ] && [ "$(cat root/d/f)" = one ] && pass || { cat err >>out; fail 'files' out; }
}

cases=${*:-programs two keys directories faults killed refused unreachable warm services parts later posix cache hostile}
for name in $cases; do case_$name; done
exit $((failed > 0))
