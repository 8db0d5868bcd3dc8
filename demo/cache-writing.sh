#!/bin/bash
# Work that syncs, behind a cache image, beside the same on the bare directory.
#
#   demo/cache-writing.sh          a table on standard output; some four minutes
#   N=300                          operations of each load
#   ON='disk xfs btrfs'            what the directory lies on: DISK=/var/tmp, loop devices over files on it
#   LOADS='create replace …'       these alone
#   BYPATH=target/release/bypath
#
# For each load and way: minimum, median and 99th percentile of an operation in microseconds, how long the end of the session
# took to write the rest (drained), and bytes that reached the disk. `eatmydata` where it is installed.
set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")/.." && pwd)
bypath=${BYPATH:-$here/target/release/bypath} n=${N:-300}
work=$(mktemp -d "${DISK:-/var/tmp}/bypath-writing.XXXXXX") shm=$(mktemp -d /dev/shm/bypath-writing.XXXXXX)
end() {
    for point in "$work"/*/at; do umount -l "$point" 2>/dev/null; done
    rm -rf --one-file-system "$work" "$shm"
}
trap end EXIT
cat >"$shm/load.py" <<'P'
import os, sqlite3, sys, threading, time
at, load, n, done = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
os.chdir(at)
took, lock = [], threading.Lock()
def each(act, count=n):
    for i in range(count):
        begun = time.perf_counter_ns(); act(i); spent = time.perf_counter_ns() - begun
        with lock: took.append(spent / 1000)
def put(name, data, flags=os.O_WRONLY | os.O_CREAT, sync=True):
    fd = os.open(name, flags, 0o644); os.write(fd, data)
    if sync: os.fsync(fd)
    os.close(fd)
block = b"x" * 4096
def database(mode):
    db = sqlite3.connect("db"); db.execute(f"pragma journal_mode={mode}"); db.execute("pragma synchronous=full"); db.execute("create table t(a, b)"); db.commit()
    def one(i):
        db.execute("insert into t values(?, ?)", (i, "x" * 200)); db.commit()
    each(one); db.close()
if load == "create": each(lambda i: put(f"f{i}", block))
elif load == "replace":
    top = os.open(".", os.O_RDONLY)
    def one(i): put("new", block); os.rename("new", "it"); os.fsync(top)
    each(one)
elif load == "append":
    fd = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    def one(i): os.write(fd, b"x" * 512); os.fdatasync(fd)
    each(one)
elif load == "overwrite":
    fd = os.open("data", os.O_RDWR | os.O_CREAT, 0o644); os.write(fd, block * 2048); os.fsync(fd)
    def one(i): os.pwrite(fd, block, (i * 7919 % 2048) * 4096); os.fdatasync(fd)
    each(one)
elif load == "sqlite-delete": database("delete")
elif load == "sqlite-wal": database("wal")
elif load == "varmail":
    # Filebench's: remove, make and append, read and append, read whole; 16 KiB a mail; a sync after each append.
    for i in range(n): put(f"m{i}", block * 4, sync=False)
    def one(i):
        a, b = f"m{i * 31 % n}", f"m{(i * 17 + 5) % n}"
        os.unlink(a); put(a, block * 4)
        with open(b, "rb") as f: f.read()
        put(b, block * 4, os.O_WRONLY | os.O_APPEND)
        with open(b, "rb") as f: f.read()
    each(one)
elif load == "threads":
    def own(t):
        fd = os.open(f"wal{t}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        def one(i): os.write(fd, b"x" * 512); os.fdatasync(fd)
        each(one, n // 8)
    all = [threading.Thread(target=own, args=(t,)) for t in range(8)]
    [t.start() for t in all]; [t.join() for t in all]
elif load == "git":
    run = lambda *words: os.spawnvp(os.P_WAIT, "git", ["git", "-c", "core.fsync=all", "-c", "user.name=a", "-c", "user.email=a@a", *words])
    run("init", "-q", ".")
    def one(i): put("f", str(i).encode(), sync=False); run("add", "f"); run("commit", "-qm", str(i))
    each(one, n // 10)
took.sort()
with open(done, "w") as f: f.write(f"{took[0]:.0f} / {took[len(took) // 2]:.0f} / {took[len(took) * 99 // 100]:.0f} {time.time_ns()}")
P
written() { awk -v device="$(stat -c %Hd:%Ld "$work")" '{ if ($1 ":" $2 == device) print int($10 / 2) }' /proc/diskstats; }
one() { # ON LOAD WAY
    local at=$work/$1/at/d cache="cache=$shm/c.img:1G" load=(python3 "$shm/load.py" DIR "$2" "$n" "$shm/done") from
    rm -rf "$at" "$work/$1/at/".d.* "$shm/c.img" && mkdir -p "$at" && sync -f "$at"
    from=$(written)
    case $3 in
    bare) "${load[@]/DIR/$at}" ;;
    eatmydata) eatmydata "${load[@]/DIR/$at}" ;;
    none) "$bypath" run --no-fuse --mount "host:$at:/cc,sync=none" -- "${load[@]/DIR//cc}" ;;
    *) "$bypath" run --no-fuse --mount "host:$at:/cc,$cache,sync=$3" -- "${load[@]/DIR//cc}" ;;
    esac 2>"$shm/err" >/dev/null || { echo "| $1 | $2 | $3 | failed: $(head -1 "$shm/err") | | |" && return; }
    local over
    over=$(date +%s%N)
    sync -f "$work"
    read -r least slash median slash2 most at_end <"$shm/done"
    echo "| $1 | $2 | $3 | $least / $median / $most | $(((over - at_end) / 1000000)) | $(($(written) - from)) |"
}
echo "$n operations; $(uname -r), $(nproc) processors, load $(cut -d' ' -f1 /proc/loadavg), $(date -I)"
echo
echo '| on | load | way | µs: minimum / median / p99 | drained after, ms | KiB to the disk |'
echo '|---|---|---|---|---|---|'
for on in ${ON:-disk xfs btrfs}; do
    mkdir -p "$work/$on/at"
    if [ "$on" != disk ]; then
        truncate -s 1G "$work/$on/file" && "mkfs.$on" -q "$work/$on/file" >/dev/null 2>&1 && mount -o loop "$work/$on/file" "$work/$on/at" || { echo "| $on | not to be had here |" && continue; }
    fi
    for load in ${LOADS:-create replace append overwrite sqlite-delete sqlite-wal varmail threads git}; do
        for way in bare none eatmydata backend image journal; do
            [ "$way" != eatmydata ] || command -v eatmydata >/dev/null || continue
            one "$on" "$load" "$way"
        done
    done
    umount -l "$work/$on/at" 2>/dev/null
done
