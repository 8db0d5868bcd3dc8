#!/bin/bash
# Work that syncs, behind a cache image, beside the same on the bare directory.
#
#   demo/cache-writing.sh          two tables on standard output; some six minutes
#   N=100                          operations of each load
#   ON='disk sshfs'                what the directory lies on: DISK=/var/tmp, sshfs over it, xfs and btrfs on loop devices
#   LOADS='create replace …'       these alone; JOBS='dpkg clone tar sqlite'
#   DEBS=200 FILES=100 DELAY=5     packages of dpkg; files of the others; milliseconds for which sshfs' answers are kept back
#   BYPATH=target/release/bypath
#
# For each load and way: minimum, median and 99th percentile of an operation in microseconds, how long the end of the session
# took to write the rest (drained), and bytes that reached the disk. Then whole jobs. `eatmydata` where it is installed, LMDB
# where Python has it, PostgreSQL as its own user (root). sshfs needs /dev/fuse and an sftp-server; it speaks to that by a pipe.
set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")/.." && pwd)
bypath=${BYPATH:-$here/target/release/bypath} n=${N:-100}
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
elif load == "lmdb":
    import lmdb
    db = lmdb.open(".", map_size=64 << 20)
    def one(i):
        with db.begin(write=True) as t: t.put(b"%08d" % (i * 7919 % 1000003), b"x" * 200)
    each(one); db.close()
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
with open(done, "w") as f: f.write(f"{took[0]:.0f} / {took[len(took) // 2]:.0f} / {took[len(took) * 99 // 100]:.0f} {time.time_ns()} {int(sum(took) * 1000)}")
P
# Of PostgreSQL each transaction, by pgbench's own log.
cat >"$shm/pgbench" <<'P'
cd "$1" && PATH=$(ls -d /usr/lib/postgresql/*/bin | tail -1):$PATH && export PGHOST=$4 PGUSER=me PGDATABASE=postgres || exit
initdb -N -D data -U me -A trust && printf "listen_addresses = ''\nunix_socket_directories = '$4'\nautovacuum = off\n" >>data/postgresql.conf &&
    pg_ctl -w -D data -l "$4/log" start && pgbench -i -q -s 1 && pgbench -n -c 1 -t "$2" -l --log-prefix="$4/each" && pg_ctl -w -D data stop || exit
cat "$4"/each.* | sort -n -k3 | awk -v at="$(date +%s%N)" '{ t[NR] = $3 } END { printf "%d / %d / %d %s", t[1], t[int(NR / 2) + 1], t[int(NR * 99 / 100) + 1], at }' >"$3"
P
cat >"$shm/job" <<'J'
cd "$1" || exit
begun=$(date +%s%N)
case $2 in
dpkg) mkdir -p root db/info db/updates db/triggers && touch db/status db/available && dpkg --force-depends --instdir="$1/root" --admindir="$1/db" --log=/dev/null --unpack "$4"/debs/*.deb ;;
tar) tar -xf "$4/tree.tar" ;;
clone) git clone -q "file://$4/tree" clone ;;
sqlite) python3 "$4/load.py" "$1" sqlite-delete 20 "$4/unused" ;;
'rsync, tar') rsync -a --exclude=.git "$4/tree/" to ;;
'rsync, clone') rsync -a "$4/clone/" to ;;
esac || exit
ended=$(date +%s%N)
# Without Python's own start.
if [ "$2" = sqlite ]; then
    read -r a b c d e ended spent <"$4/unused"
    begun=$((ended - spent))
fi
echo "$begun $ended" >"$3"
J
# What answers sshfs, each answer so much later.
cat >"$shm/ssh" <<P
#!/usr/bin/env python3
import os, queue, subprocess, threading, time
server = subprocess.Popen(["$(ls /usr/lib/openssh/sftp-server /usr/libexec/openssh/sftp-server 2>/dev/null | head -1)"], stdout=subprocess.PIPE)
answers = queue.SimpleQueue()
def read():
    while data := os.read(server.stdout.fileno(), 1 << 17): answers.put((time.monotonic() + ${DELAY:-5} / 1000, data))
    answers.put(None)
threading.Thread(target=read, daemon=True).start()
while answer := answers.get():
    time.sleep(max(0, answer[0] - time.monotonic()))
    data = answer[1]
    while data: data = data[os.write(1, data):]
P
chmod 755 "$shm/ssh"
# Files to unpack and to clone; packages made of what is installed, without what they do when they are.
things() {
    mkdir -p "$shm/tree" "$shm/debs"
    python3 -c "
import os
for i in range(${FILES:-100}):
    os.makedirs(f'd{i % 20}', exist_ok=True)
    with open(f'd{i % 20}/f{i}', 'w') as f: f.write(f'{i} ' * (100 + i * 37 % 2000))" && git init -q . && git add . && git -c user.name=a -c user.email=a@a commit -qm all
    tar --exclude=.git -cf "$shm/tree.tar" . && git clone -q "file://$shm/tree" "$shm/clone"
    command -v dpkg >/dev/null || return
    dpkg-query -W -f '${Installed-Size} ${Package}\n' | awk '$1 > 20 && $1 < 600 { print $2 }' | head -n "${DEBS:-200}" | while read -r package; do
        mkdir -p "$shm/deb/DEBIAN" && printf 'Package: %s\nVersion: 1\nArchitecture: all\nMaintainer: a <a@a>\nDescription: a\n' "$package" >"$shm/deb/DEBIAN/control"
        dpkg -L "$package" | while read -r file; do [ -f "$file" ] && echo "$file"; done | tar -cPf - -T - 2>/dev/null | tar -xf - -C "$shm/deb" 2>/dev/null
        dpkg-deb -Znone -b "$shm/deb" "$shm/debs/$package.deb" >/dev/null
        rm -rf "$shm/deb"
    done
}
written() { awk -v device="$(stat -c %Hd:%Ld "$work")" '{ if ($1 ":" $2 == device) print int($10 / 2) }' /proc/diskstats; }
# run WAY AT COMMAND…: the command, in which DIR is the directory, so mounted.
run() {
    local way=$1 at=$2 cache="cache=$shm/c.img:1G" to=/cc from="host:$2"
    shift 2
    case $at in */sshfs/at) from="fuse:sshfs -f -o ssh_command=$shm/ssh here:$work/sshfs/low @" ;; esac
    case $way in
    bare) "${@//DIR/$at}" ;;
    eatmydata) eatmydata "${@//DIR/$at}" ;;
    none) "${as[@]}" "$bypath" run --no-fuse --mount "$from:$to,sync=none" -- "${@//DIR/$to}" ;;
    fuse) "$bypath" run --no-fuse --mount "$from:$to" -- "${@//DIR/$to}" ;;
    *) "${as[@]}" "$bypath" run --no-fuse --mount "$from:$to,$cache,sync=$way" -- "${@//DIR/$to}" ;;
    esac 2>"$shm/err" >/dev/null
}
# fresh AT: an empty directory, and all written that was before.
fresh() {
    rm -rf "$1" "${1%/*}"/.d.* "$shm"/c.img* "$shm"/each.* "$shm/done" && mkdir -p "$1" && sync -f "$1"
}
one() { # ON LOAD WAY
    local at=$work/$1/at/d load=(python3 "$shm/load.py" DIR "$2" "$n" "$shm/done") as=() from over
    fresh "$at"
    if [ "$2" = pgbench ]; then
        chown postgres "$at" && chmod 1777 "${at%/*}" && as=(setpriv --reuid=postgres --regid=postgres --clear-groups) || return
        load=("${as[@]}" bash "$shm/pgbench" DIR "$n" "$shm/done" "$shm")
        [ "$3" = bare ] || [ "$3" = eatmydata ] || load=("${load[@]:4}")
    fi
    from=$(written)
    run "$3" "$at" "${load[@]}" || { echo "| $1 | $2 | $3 | failed: $(head -1 "$shm/err") | | |" && return; }
    over=$(date +%s%N)
    sync -f "$work"
    read -r least slash median slash2 most at_end spent <"$shm/done"
    echo "| $1 | $2 | $3 | $least / $median / $most | $(((over - at_end) / 1000000)) | $(($(written) - from)) |"
}
job() { # ON JOB WAY
    local at=$work/$1/at/d from over as=()
    if [ "$1" = sshfs ]; then
        at=$work/sshfs/at
        fresh "$work/sshfs/low" && mkdir -p "$at"
        [ "$3" != bare ] || sshfs -o ssh_command="$shm/ssh" "here:$work/sshfs/low" "$at" 2>"$shm/err" || { echo "| $1 | $2 | $3 | failed: $(head -1 "$shm/err") | | |" && return; }
    else
        fresh "$at"
    fi
    from=$(written)
    run "$3" "$at" bash "$shm/job" DIR "$2" "$shm/done" "$shm"
    local code=$?
    over=$(date +%s%N)
    umount "$at" 2>/dev/null
    [ "$code" = 0 ] || { echo "| $1 | $2 | $3 | failed: $(head -1 "$shm/err") | | |" && return; }
    sync -f "$work"
    read -r begun ended <"$shm/done"
    printf '| %s | %s | %s | %d.%d | %d | %d |\n' "$1" "$2" "$3" $(((ended - begun) / 1000000)) $(((ended - begun) / 100000 % 10)) $(((over - begun) / 1000000)) $(($(written) - from))
}
chmod 1777 "$shm" "$work"
echo "$n operations; $(uname -r), $(nproc) processors, load $(cut -d' ' -f1 /proc/loadavg), $(date -I)"
echo
echo '| on | load | way | µs: minimum / median / p99 | drained after, ms | KiB to the disk |'
echo '|---|---|---|---|---|---|'
for on in ${ON:-disk sshfs}; do
    mkdir -p "$work/$on/at" && chmod 1777 "$work/$on" "$work/$on/at"
    case $on in
    sshfs) continue ;;
    disk) ;;
    *) truncate -s 1G "$work/$on/file" && "mkfs.$on" -q "$work/$on/file" >/dev/null 2>&1 && mount -o loop "$work/$on/file" "$work/$on/at" || { echo "| $on | not to be had here |" && continue; } ;;
    esac
    for load in ${LOADS-create replace append overwrite sqlite-delete sqlite-wal varmail threads git lmdb pgbench}; do
        case $load in
        lmdb) python3 -c 'import lmdb' 2>/dev/null || { echo "| $on | $load | not to be had here |" && continue; } ;;
        pgbench) id postgres >/dev/null 2>&1 && ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || { echo "| $on | $load | not to be had here |" && continue; } ;;
        esac
        for way in bare none eatmydata backend image journal; do
            [ "$way" != eatmydata ] || command -v eatmydata >/dev/null || continue
            one "$on" "$load" "$way"
        done
    done
done
echo
echo '| on | job | way | ms until return | ms until drained | KiB to the disk |'
echo '|---|---|---|---|---|---|'
things=$(mkdir -p "$shm/tree" && cd "$shm/tree" && things 2>&1) || echo "$things" >&2
jobs=" ${JOBS-dpkg clone tar sqlite} "
for on in ${ON:-disk sshfs}; do
    mountpoint -q "$work/$on/at" || case $on in disk | sshfs) ;; *) continue ;; esac
    if [ "$on" = sshfs ]; then
        command -v sshfs >/dev/null && [ -w /dev/fuse ] || { echo '| sshfs | not to be had here |' && continue; }
        for job in clone tar sqlite; do
            case $jobs in *" $job "*) ;; *) continue ;; esac
            for way in bare fuse backend image; do job "$on" "$job" "$way"; done
            [ "$job" = sqlite ] || job "$on" "rsync, $job" bare
        done
    elif [ "${jobs#* dpkg }" != "$jobs" ] && ls "$shm"/debs/*.deb >/dev/null 2>&1; then
        for way in bare none eatmydata backend image journal; do
            [ "$way" != eatmydata ] || command -v eatmydata >/dev/null || continue
            job "$on" dpkg "$way"
        done
    fi
    umount -l "$work/$on/at" 2>/dev/null
done
