#!/bin/bash
# own
# needs: python3 setsid flock
# seconds: 200
# Goal: with sync=journal, what fsync has acknowledged is in the directory after the image has gone with the machine's memory:
# by the next session, by `bypath cache replay`, whatever was killed; and a session that ends in order leaves nothing.
# Method: sessions that are killed whole, their image removed; each program says what it has synced before it is.
set -u
failed=0
fail() { echo "$*" && failed=1; }
# The image in memory, all else on a disk.
image=$PWD/c.img
disk=$(mktemp -d /var/tmp/bypath-journal.XXXXXX) && trap 'rm -rf "$disk"' EXIT && cd "$disk" || exit 1
point=$PWD/m journal=$PWD/.low.bypath-journal
case $(stat -f -c %T .) in tmpfs | ramfs) echo 'skip: a journal wants a disk' && exit 0 ;; esac
mkdir m low
run() { # OPTIONS COMMAND…
    local options=$1
    shift
    timeout 120 "$bypath" run --no-fuse --mount "host:$PWD/low:$point,cache=$image:256M,sync=journal$options" -- "$@" 2>err
}
nothing_left() { # WHAT
    for i in $(seq 100); do [ -e low/.bypath-cache ] || [ -e "$journal" ] || break; sleep 0.1; done
    [ -e low/.bypath-cache ] || [ -e low/.bypath-park ] || [ -e "$journal" ] && fail "$1: left: $(ls -d low/.bypath-* "$journal" 2>&1)"
}
power_cut() { # LEADER: everybody is killed, and the memory is gone
    local pids
    kill -9 -- -"$1" 2>/dev/null
    # Who goes on for a session that was killed is in a session of its own.
    while pids=$(pgrep -f "cache-spare [0-9]* $image"); do kill -9 $pids; done 2>/dev/null
    wait 2>/dev/null
    # A process that is killed keeps its locks until it has gone.
    [ -e low/.bypath-cache ] && flock -w 20 low/.bypath-cache true
    rm -f "$image"
}

# A session that ends in order.
run '' bash -c "cd $point && mkdir d && for i in \$(seq 50); do echo \$i >d/f\$i && sync d/f\$i || exit 1; done && mv d e && rm e/f7" || fail "in order: $(cat err)"
[ "$(ls low/e | wc -l)" = 49 ] && [ "$(cat low/e/f50)" = 50 ] || fail 'in order: the directory'
nothing_left 'in order'

# The journal has it when fsync returns, the directory later.
run '' bash -c "cd $point && echo one >one && sync one && test -s $journal && grep -q '^journal $journal' $PWD/low/.bypath-cache" || fail "fsync: $(cat err)"

# Killed and the image lost, again and again; each program says what it has synced.
cat >work.py <<'PY'
import os, sys
point, said, turn = sys.argv[1], open(sys.argv[2], "w"), int(sys.argv[3])
os.chdir(point)
def sync(path):
    fd = os.open(path, os.O_RDONLY); os.fsync(fd); os.close(fd)
number = 0
while True:
    number += 1
    name = f"k{number % 23}"
    with open("new", "w") as f:
        f.write(f"{turn}.{number}\n" + "x" * (number % 7 * 3000)); f.flush(); os.fsync(f.fileno())
    os.rename("new", name)
    sync(".")
    print(name, f"{turn}.{number}", file=said, flush=True)
    with open("log", "a") as f:
        f.write(f"{turn}.{number}\n"); f.flush(); os.fsync(f.fileno())
    print("log", f"{turn}.{number}", file=said, flush=True)
    if number % 11 == 0:
        os.makedirs(f"deep/{number % 5}", exist_ok=True)
        os.link(name, "other")
        os.rename("other", f"deep/{number % 5}/{name}")
    if number % 50 == 0:
        os.rename("deep", "moved"); os.rename("moved", "deep")
PY
: >total
for turn in 1 2 3 4 5 6; do
    setsid timeout 60 "$bypath" run --no-fuse --mount "host:$PWD/low:$point,cache=$image:256M,sync=journal" -- python3 work.py "$point" "$PWD/said" "$turn" 2>err &
    leader=$!
    for i in $(seq 100); do [ -s said ] && break; sleep 0.1; done
    sleep "1.$((turn * 3))"
    power_cut $leader
    cat said >>total && rm said
    [ -s err ] && grep -v 'replaying the journal' err | grep . && fail "turn $turn: the session said that"
    if [ $((turn % 2)) = 0 ]; then
        # Other sessions are told, or replay it.
        [ $turn = 4 ] && { timeout 60 "$bypath" run --no-fuse --mount "host:$PWD/low:$point,ro" -- true 2>err || fail "to read: $(cat err)"; }
        "$bypath" cache replay low >replayed || fail "replay: $turn"
        nothing_left "replay $turn"
    elif [ $turn = 3 ]; then
        timeout 60 "$bypath" run --no-fuse --mount "host:$PWD/low:$point" -- true 2>err || fail "a plain session: $(cat err)"
        grep -q 'replaying the journal' err || fail 'a plain session did not say what it does'
        nothing_left 'a plain session'
    fi
    [ -e low/.bypath-cache ] && { timeout 60 "$bypath" run --no-fuse --mount "host:$PWD/low:$point,cache=$image:256M" -- true 2>err || fail "the next session: $(cat err)"; }
    python3 - <<'PY' || fail "turn $turn: something synced is missing"
import glob, sys
key = lambda text: tuple(map(int, text.split(".")))
synced, log = {}, []
for line in open("total"):
    name, said = line.split()
    synced[name] = key(said)
    if name == "log": log.append(said)
bad = [name for name, said in synced.items() if name != "log" and key(open(f"low/{name}").readline().strip()) < said]
here = open("low/log").read().split()
bad += [said for said in log if said not in set(here)]
for path in glob.glob("low/k*"):
    text = open(path).read()
    first, rest = text.split("\n", 1)
    if rest != "x" * (key(first)[1] % 7 * 3000): bad.append(path)
if bad: print(bad[:10], synced)
sys.exit(bool(bad))
PY
done
[ "$(wc -l <total)" -gt 50 ] || fail 'next to nothing was tried'

# Killed, with the image: it goes on from that.
setsid timeout 60 "$bypath" run --no-fuse --mount "host:$PWD/low:$point,cache=$image:256M,sync=journal" -- python3 work.py "$point" "$PWD/said" 7 2>err &
leader=$!
for i in $(seq 300); do grep -qs ^log said && break; sleep 0.1; done
kill -9 -- -$leader
wait 2>/dev/null
"$bypath" cache replay low 2>err && fail 'replayed although the image is there'
"$bypath" cache drain "$image" 2>err || fail "drain: $(cat err)"
nothing_left 'drain'
last=$(awk '/^log/ { last = $2 } END { print last }' said)
grep -qx "$last" low/log || fail 'drained: something is missing'
# As long as it writes back for others, there is no journal.
for i in $(seq 200); do pgrep -f "cache-spare [0-9]* $image" >/dev/null || break; sleep 0.1; done

# A database; a mapped file.
if python3 -c 'import sqlite3' 2>/dev/null; then
    cat >base.py <<'PY'
import mmap, os, sqlite3, sys, time
os.chdir(sys.argv[1])
c = sqlite3.connect("base.sqlite"); c.execute("pragma journal_mode=wal"); c.execute("pragma synchronous=full"); c.execute("create table t(a, b)")
for i in range(200):
    with c: c.execute("insert into t values(?, ?)", (i, "x" * 500))
f = open("mapped", "w+b"); f.truncate(100000); m = mmap.mmap(f.fileno(), 0); m[5000:5005] = b"mmap!"; m.flush()
open(sys.argv[2], "w").write("ready")
time.sleep(60)
PY
    setsid timeout 60 "$bypath" run --no-fuse --mount "host:$PWD/low:$point,cache=$image:256M,sync=journal,journal=$PWD/other.j:8M" -- python3 base.py "$point" "$PWD/ready" 2>err &
    leader=$!
    for i in $(seq 200); do [ -s ready ] && break; sleep 0.1; done
    power_cut $leader
    "$bypath" cache replay low >replayed || fail 'replay of a database'
    [ "$(cd low && python3 -c 'import sqlite3; c = sqlite3.connect("base.sqlite"); print(c.execute("select count(*), sum(a) from t").fetchone(), c.execute("pragma integrity_check").fetchone()[0], open("mapped", "rb").read()[5000:5005])')" = "(200, 19900) ok b'mmap!'" ] || fail 'the database, or the mapped file, is not as it was synced'
fi

# What cannot keep the promise is refused.
mkdir memory && mount -t tmpfs none memory 2>/dev/null && {
    run ",journal=$PWD/memory/j" true && fail 'a journal in memory was allowed'
    grep -q 'in memory' err || fail "a journal in memory: $(cat err)"
    umount memory
}
timeout 20 "$bypath" run --no-fuse --mount "host:$PWD/low:$point,cache=$image,journal=$PWD/j" -- true 2>err && fail 'journal= alone was allowed'
nothing_left 'refused'
exit $failed
