#!/bin/bash
# Two sessions on one CephFS cluster are as two machines: locks exclude each other, a killed program's locks are freed,
# appenders that lock lose nothing, what the one renames, links and writes the other sees at once, also in a file that it has open and
# has read. Behind a cache too, locks exclude, and who gets one sees what was written under it. Method: a cluster of this machine's (mini-ceph.sh), `--mount ceph:`, a ceph-fuse for each session.
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

# Behind a cache image each: locks exclude, and who gets one sees what was written under it before.
count='
import fcntl, os, sys
for _ in range(20):
    fd = os.open("c/count", os.O_RDWR)
    lock = fcntl.flock if sys.argv[1] == "flock" else fcntl.lockf
    lock(fd, fcntl.LOCK_EX)
    number = int(os.pread(fd, 20, 0))
    os.pwrite(fd, b"%d\n" % (number + 1), 0)
    lock(fd, fcntl.LOCK_UN)
    os.close(fd)'
cached() { timeout 120 "$bypath" run --no-fuse --mount "$spec,cache=$work/$1.img:64M" -- "${@:2}"; }
for kind in flock record; do
    run sh -c 'echo 10000000 >c/count' 2>/dev/null
    for i in 1 2 3; do cached $i python3 -c "$count" $kind 2>"err.$i" & counters[i]=$!; done
    wait "${counters[@]}"
    got=$(run cat c/count 2>/dev/null) && [ "$got" = 10000060 ] || fail "$kind behind caches: counted to $got $(cat err.*)"
done

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

# A session that is killed, with its ceph-fuse: what it had locked is had by another. The MDS waits for its word first.
rm -f ready && mkfifo ready
"$bypath" run --no-fuse --mount "$spec" -- python3 -c '
import fcntl, os, sys, time
f = open("c/f", "r+")
fcntl.flock(f, fcntl.LOCK_EX)
os.write(os.open("ready", os.O_WRONLY), b"%d\n" % os.getppid())
time.sleep(600)' 2>err &
session=$!
read -r parent <ready
kill -9 "$parent" $session 2>/dev/null
: >given-up
got=$(timeout 150 "$bypath" run --no-fuse --mount "$spec" -- python3 "$tests/lock.py" "$work/c/f" flock wait 2>err)
[ "$got" = had ] || fail "a killed session's lock: $got $(cat err)"

# Quota is what statfs says; a snapshot shows what was.
run python3 -c '
import os
os.mkdir("c/q")
os.setxattr("c/q", "ceph.quota.max_bytes", b"104857600")
os.mkdir("c/snapped")
open("c/snapped/file", "w").write("before")
os.mkdir("c/snapped/.snap/first")
open("c/snapped/file", "w").write("after")
print(open("c/snapped/.snap/first/file").read(), open("c/snapped/file").read(), os.listdir("c/snapped/.snap"))' >out 2>err
[ "$(cat out)" = "before after ['first']" ] || fail "a snapshot: $(cat out err)"
got=$(timeout 60 "$bypath" run --no-fuse --mount "${spec/ceph:\/:/ceph:/q:}" -- python3 -c '
import os, sys
about = os.statvfs("c")
print(about.f_blocks * about.f_frsize)' 2>err)
[ "$got" = 104857600 ] || fail "a quota: $got $(cat err)"

# Programs, as on tmpfs: on the cluster alone, and behind a cache.
for program in git rsync sqlite3; do type -P $program >/dev/null || missing_programs="${missing_programs:-} $program"; done
if [ -n "${missing_programs:-}" ]; then
    echo "skip cluster, programs:$missing_programs not installed: LEFT OUT, not passed"
else
    mkdir beside
    bash "$tests/objects/use.sh" "$work/beside" >beside.out 2>&1 </dev/null
    for options in '' ",cache=$work/programs.img:256M"; do
        run mkdir "c/programs${options:+-cached}" 2>/dev/null
        timeout 300 "$bypath" run --no-fuse --mount "$spec$options" -- bash "$tests/objects/use.sh" "$work/c/programs${options:+-cached}" >in.out 2>err </dev/null ||
            fail "programs${options:+ with a cache}: $(tail -5 err)"
        cmp -s beside.out in.out || fail "programs${options:+ with a cache} differ from tmpfs: $(diff beside.out in.out | head -5) $(tail -3 err)"
        run bash "$tests/objects/use.sh" "$work/c/programs${options:+-cached}" sums >again.out 2>err
        cmp -s <(bash "$tests/objects/use.sh" "$work/beside" sums) again.out || fail "another session finds something else$options: $(tail -3 err)"
    done
fi

# A bucket, the cluster and an image in one session, of a process without any capability: all three by one program.
objects=$(dirname "$bypath")/bypath-objects
if [ ! -x "$objects" ] || ! type -P setpriv >/dev/null; then
    echo 'skip cluster, a bucket beside it: bypath-objects or setpriv is missing: LEFT OUT, not passed'
else
    python3 "$tests/objects/server.py" "$work" 2>server.err &
    store=$!
    wait_until test -e port || fail "the store does not start: $(cat server.err)"
    "$bypath" mkfs "$work/beside.img" --size 64M >made 2>&1 || fail "mkfs: $(cat made)"
    mkdir b i
    got=$(AWS_ACCESS_KEY_ID=key AWS_SECRET_ACCESS_KEY=secret AWS_EC2_METADATA_DISABLED=true timeout 120 \
        setpriv --bounding-set=-all --inh-caps=-all --no-new-privs "$bypath" run --no-fuse --mount "$spec" \
        --mount "s3:http://127.0.0.1:$(cat port)/bucket:$work/b" --mount "$work/beside.img:$work/i" -- sh -c '
            set -e
            grep -q "^CapEff:.*[1-9a-f]" /proc/self/status && echo capable
            seq 1000 >i/numbers && mkdir i/tree && for n in $(seq 20); do echo $n >i/tree/$n; done
            cp -r i/tree i/numbers b && mkdir c/beside && cp -r b/tree b/numbers c/beside
            sed -i s/^7$/seven/ c/beside/numbers && rsync -r c/beside/ i/again && tar -C c/beside -cf b/all.tar . && tar -C i -xf b/all.tar
            diff -r i/again c/beside && diff -r i/tree b/tree && grep -c seven i/numbers' 2>err) && [ "$got" = 1 ] ||
        fail "a bucket, a cluster, an image: $got $(tail -5 err)"
    kill $store
fi

# pjdfstest: what passes over ceph-fuse by the kernel passes here, but for what no mount without the kernel's can do.
suite=${TOOLS:-$here/../../target/tools/bin}/pjdfstest
if [ ! -x "$suite" ] || [ ! -w /dev/fuse ]; then
    echo "skip cluster, pjdfstest: ${suite##*/} (make mount-tools) or /dev/fuse is missing: LEFT OUT, not passed"
else
    passed() { awk '$NF == "ok" { print $1 }' "$1" | sort; }
    mkdir kernel
    ceph-fuse -c "$work/ceph/ceph.conf" -k "$work/ceph/keyring" kernel >mounted 2>&1 || fail "ceph-fuse does not mount: $(cat mounted)"
    mkdir -m 777 kernel/by-kernel kernel/by-us
    timeout 600 "$suite" -c "$tests/mount/pjdfstest.toml" -p kernel/by-kernel >by-kernel 2>&1
    umount kernel
    timeout 600 "$bypath" run --no-fuse --mount "$spec" -- "$suite" -c "$tests/mount/pjdfstest.toml" -p c/by-us >by-us 2>err
    known=$(sed -n 's/ *#.*//; s/^without a mount: //p' "$tests/mount/pjdfstest.known")
    missing=$(comm -23 <(passed by-kernel) <(passed by-us) | grep -vxF "$known")
    [ "$(passed by-kernel | wc -l)" -gt 300 ] || fail "pjdfstest: only $(passed by-kernel | wc -l) pass by the kernel"
    [ -z "$missing" ] && echo "     pjdfstest: $(passed by-us | wc -l) tests" || fail "pjdfstest:" $missing
fi

# The MDS is killed and started again while one session writes: each call does what it says or fails, within its time.
rm -f ready && mkfifo ready
run python3 -c '
import os, time
os.mkdir("c/load")
done, failed = {}, []
open("ready", "w").write("x")
until = time.monotonic() + 12
number = 0
while time.monotonic() < until:
    name, begun = "c/load/%d" % number, time.monotonic()
    number += 1
    try:
        with open(name, "w") as file:
            file.write("text %d" % number)
            os.fsync(file.fileno())
        os.rename(name, name + ".done")
        done[name + ".done"] = "text %d" % number
    except OSError as error:
        failed.append(error)
    assert time.monotonic() - begun < 100
print(len(done) > 0, failed, all(open(name).read() == text for name, text in done.items()))
open("expected", "w").write(repr(done))' >out 2>err &
session=$!
read -r _ <ready
mds=$(cat "$work"/ceph/run/mds.a.pid)
kill -9 "$mds"
sleep 1
ceph-mds -c "$work/ceph/ceph.conf" --keyring "$work/ceph/mds/a/keyring" -i a >mds.out 2>&1 || fail "the MDS does not start again: $(cat mds.out)"
wait $session || fail "beside an MDS that fails: $(cat out err)"
grep -q '^True .* True$' out || fail "beside an MDS that fails: $(cat out err)"
got=$(run python3 -c '
done = eval(open("expected").read())
print(all(open(name).read() == text for name, text in done.items()))' 2>err)
[ "$got" = True ] || fail "after an MDS that failed, another session: $got $(cat err)"
cat out

"$here/mini-ceph.sh" stop "$work/ceph"
verdict 'cluster: two sessions' $failed
exit $failed
