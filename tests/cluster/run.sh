#!/bin/bash
# Two sessions on one CephFS cluster are as two machines: locks exclude each other, a killed program's locks are freed,
# appenders that lock lose nothing, what the one renames, links and writes the other sees at once, also in a file that it has open and
# has read. Method: a cluster of this machine's (mini-ceph.sh), `--mount ceph:`, a ceph-fuse for each session.
#
#   run.sh        BYPATH=target/release/bypath  KEEP=1 leaves the work directory
#
# Slow and large, so not a part of CI. Debian's packages are installed if that is allowed; without them it says so and is left out.
set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
tests=$(dirname "$here")
. "$tests/common.sh"
packages='ceph-mon ceph-mgr ceph-osd ceph-mds ceph-common ceph-fuse libcephfs2 bc'
if ! command -v ceph-mon ceph-mgr ceph-osd ceph-mds ceph-fuse bc >/dev/null; then
    # shellcheck disable=SC2086
    timeout 600 apt-get install -y --no-install-recommends $packages >/dev/null 2>&1 || {
        echo "skip cluster: $packages could not be installed: a cluster is NOT tested"
        exit 0
    }
fi
begin cluster k "${TMPDIR:-/tmp}"
cd "$work" || exit 2
mkdir c
if ! PORT=${PORT:-40790} timeout 180 "$here/mini-ceph.sh" start "$work/ceph" >started 2>&1; then
    tail -20 started
    echo 'FAIL cluster: it does not start'
    "$here/mini-ceph.sh" stop "$work/ceph"
    exit 1
fi
spec="ceph:/:$work/c,conf=$work/ceph/ceph.conf,keyring=$work/ceph/keyring"
run() { timeout 120 "$bypath" run --no-fuse --mount "$spec" -- "$@"; }
fail() { echo "     $*" && failed=1; }
lock() { run python3 "$tests/lock.py" "$work/c/f" "$@" 2>err; }
run sh -c 'cd c && mkdir d && touch f log d/old' || fail 'it is not mounted'

for kind in flock record ofd; do
    rm -f given-up
    coproc holder { lock $kind hold; }
    read -r got <&"${holder[0]}"
    [ "$got" = had ] || fail "$kind: $got"
    got=$(lock $kind try) && [ "$got" = EAGAIN ] || fail "$kind, another session: $got"
    lock $kind wait >waited &
    waiter=$!
    echo >&"${holder[1]}"
    wait $waiter
    [ "$(cat waited)" = had ] || fail "$kind, waiting: $(cat waited)"
    echo >&"${holder[1]}"
    wait "$holder_PID"
    rm -f gate ready && mkfifo gate ready
    run bash -c "coproc holder { exec python3 $tests/lock.py c/f $kind hold; }; read -r got <&\${holder[0]}
        kill -9 \$holder_PID; echo killed >ready; read -r _ <gate" 2>err &
    session=$!
    read -r got <ready
    got=$(lock $kind wait) && [ "$got" = had ] || fail "$kind, killed in another session: $got"
    echo >gate
    wait $session
done

for i in 1 2 3 4; do
    run sh -c "for n in \$(seq 50); do flock c/f sh -c 'echo \"\$1\" >>c/log' sh \"$i \$n\"; done" 2>/dev/null &
    appenders[i]=$!
done
wait "${appenders[@]}"
[ "$(run sort -u c/log 2>/dev/null | wc -l)" = 200 ] || fail "four appenders: $(run sort -u c/log 2>/dev/null | wc -l) of 200 lines"

rm -f go seen && mkfifo go seen
run python3 -c '
import os
names = lambda: sorted(os.listdir("c/d"))
f = open("c/d/old", "r+")
print(names(), os.fstat(f.fileno()).st_nlink, f.read(), file=open("seen", "w"))
open("go").read()
f.seek(0)
print(names(), os.fstat(f.fileno()).st_nlink, f.read(), os.path.exists("c/d/old"), file=open("seen", "w"))' 2>err &
watcher=$!
first=$(cat seen)
run sh -c 'cd c/d && echo text >>old && mv old new && ln new other' 2>/dev/null
echo >go
second=$(cat seen)
wait $watcher
[ "$first" = "['old'] 1 " ] || fail "at first: $first $(cat err)"
[ "$second" = "['new', 'other'] 2 text
 False" ] || fail "after the other's changes: $second $(cat err)"

"$here/mini-ceph.sh" stop "$work/ceph"
verdict 'cluster: two sessions' $failed
exit $failed
