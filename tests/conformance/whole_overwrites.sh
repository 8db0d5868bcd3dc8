#!/bin/bash
# own
# needs: python3
# seconds: 240
# With atomic=undo and atomic=replay a record that is overwritten by one call is the old one or the new one, whole, whenever
# who overwrites it is killed: for who was there before and reads it then, and for who comes later.
# Method: processes overwrite records of 1 MiB (and short ones) in every way there is, and are killed at random;
# then all records are read. Behind a kernel mount the server is killed.
set -u
. "$(dirname "$0")/own.sh"
failed=0
cat >overwrite.py <<'P'
# overwrite.py DIR ROUNDS: makes the records, and has processes that overwrite them killed; each must be whole then.
import ctypes, os, random, signal, sys, time
directory, rounds = sys.argv[1], int(sys.argv[2])
seed = int.from_bytes(os.urandom(4), "little")
rng = random.Random(seed)
LONG, SHORT, RECORDS, WORKERS = 1 << 20, 300, 3, 3
libc = ctypes.CDLL(None, use_errno=True)
def make(name, size):
    fd = os.open(name, os.O_RDWR | os.O_CREAT, 0o644)
    # In pieces that lie apart, and not at the border of a block; those that are there already are whole.
    for number in range(RECORDS if os.fstat(fd).st_size < 5 + RECORDS * size else 0):
        for at in range(0, size, 200_000):
            os.pwrite(fd, bytes([number + 1]) * min(200_000, size - at), 5 + number * size + at)
            os.pwrite(other, b"x" * 9000, at)
    return fd
other = os.open(directory + "/other", os.O_RDWR | os.O_CREAT, 0o644)
files = [(make(directory + "/long", LONG), LONG), (make(directory + "/short", SHORT), SHORT)]
def work(rng):
    position = os.open(directory + "/long", os.O_RDWR)
    outside = os.memfd_create("outside")
    inside = os.open(directory + "/source%d" % os.getpid(), os.O_RDWR | os.O_CREAT, 0o644)
    while True:
        fd, size = rng.choice(files)
        byte, at = rng.randrange(1, 256), 5 + rng.randrange(RECORDS) * size
        record, way = bytes([byte]) * size, rng.randrange(6)
        if way == 0:
            done = os.pwrite(fd, record, at)
        elif way == 1:
            done = os.pwritev(fd, [record[:99], record[99:]], at)
        elif way == 2 and size == LONG:
            os.lseek(position, at, 0)
            done = os.write(position, record)
        elif way == 3 and size == LONG:
            os.lseek(position, at, 0)
            done = os.writev(position, [record[:size // 2], record[size // 2:]])
        elif way == 4:
            os.pwrite(inside, record, 0)
            done = os.copy_file_range(inside, fd, size, 0, at)
        elif way == 5 and size == LONG:
            os.pwrite(outside, record, 0)
            os.lseek(position, at, 0)
            done = os.sendfile(position, outside, 0, size)
        else:
            continue
        assert done == size, (way, done)
def look(when):
    for fd, size in files:
        for number in range(RECORDS):
            record = os.pread(fd, size, 5 + number * size)
            if record.count(record[:1]) != size:
                first = next(i for i, b in enumerate(record) if b != record[0])
                sys.exit("seed %d, %s: a record of %d bytes is mixed: %d up to %d, then %d" % (seed, when, size, record[0], first, record[first]))
for turn in range(rounds):
    pids = []
    for worker in range(WORKERS):
        pid = os.fork()
        if not pid:
            try:
                work(random.Random(seed + turn * WORKERS + worker))
            finally:
                os._exit(3)
        pids.append(pid)
    time.sleep(rng.uniform(0, 0.02))
    # One after the other: the last ones wait for what the first had locked, and adopt it.
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        time.sleep(rng.choice([0, 0.001]))
    for pid in pids:
        status = os.waitpid(pid, 0)[1]
        assert os.WIFSIGNALED(status), status
        for name in ["/source%d" % pid]:
            if os.path.exists(directory + name):
                os.unlink(directory + name)
    look("round %d" % turn)
print("ok")
P
cat >look.py <<'P'
# look.py DIR: the records of somebody who is gone.
import sys
for name, size in [("long", 1 << 20), ("short", 300)]:
    data = open(sys.argv[1] + "/" + name, "rb").read()[5:]
    for number in range(3):
        record = data[number * size:(number + 1) * size]
        if record.count(record[:1]) != size:
            sys.exit("%s: record %d is mixed" % (name, number))
print("ok")
P
for how in undo replay; do
    "$bypath" mkfs i.img --size 128M >/dev/null || fail "mkfs"
    mkdir -p m
    # SEEDED=1: without the option, which this test must notice.
    option=,atomic=$how && [ -n "${SEEDED:-}" ] && option=
    same "$how, killed programs" "$("$bypath" run --no-fuse --mount "i.img:$PWD/m$option" -- python3 overwrite.py "$PWD/m" ${ROUNDS:-120} 2>&1 | tail -1)" ok
    same "$how, check" "$("$bypath" check i.img >/dev/null; echo $?)" 0
    # All at once, nobody left: who comes next finds it.
    for turn in 1 2 3 4 5 6 7 8; do
        setsid "$bypath" run --no-fuse --mount "i.img:$PWD/m$option" -- python3 overwrite.py "$PWD/m" 1000000 >out 2>&1 &
        session=$!
        sleep 0.$((RANDOM % 4 + 6))
        # Nobody is started meanwhile: the kernel sees to that.
        kill -KILL -- -$session
        wait $session 2>/dev/null
        for wait in $(seq 200); do
            pgrep -g $session >/dev/null || break
            sleep 0.02
        done
        same "$how, all killed" "$("$bypath" run --no-fuse --mount "i.img:$PWD/m" -- python3 look.py "$PWD/m" 2>&1 | tail -1)" ok
    done
    same "$how, check" "$("$bypath" check i.img >/dev/null; echo $?)" 0
    rm -f i.img
done
# Through the kernel: each request is a call of the server's, which is killed.
cat >through.py <<'P'
# through.py DIR make|write|look: records of 512 KiB, at the borders of pages.
import os, random, sys
directory, what = sys.argv[1:]
SIZE, RECORDS = 512 << 10, 4
fd = os.open(directory + "/records", os.O_RDWR | os.O_CREAT, 0o644)
if what == "make":
    os.pwrite(fd, b"x" * SIZE * RECORDS, 0)
elif what == "write":
    try:
        while True:
            assert os.pwrite(fd, bytes([random.randrange(1, 256)]) * SIZE, random.randrange(RECORDS) * SIZE) == SIZE
    except OSError:
        os._exit(0)
else:
    for number in range(RECORDS):
        record = os.pread(fd, SIZE, number * SIZE)
        if record.count(record[:1]) != SIZE:
            sys.exit("record %d is mixed" % number)
    print("ok")
P
if [ -w /dev/fuse ]; then
    for how in undo replay; do
        "$bypath" mkfs k.img --size 64M >/dev/null && mkdir -p k && "$bypath" mount -o atomic=$how "$PWD/k.img" k || fail "mount"
        python3 through.py k make
        for turn in 1 2 3 4 5 6; do
            for writer in 1 2; do python3 through.py k write & done
            sleep 0.$((RANDOM % 5 + 3))
            kill -KILL $(pgrep -f -- "--foreground.*$PWD/k.img") || fail "no server"
            wait
            umount -l k
            same "$how, server killed" "$("$bypath" run --no-fuse --mount "k.img:$PWD/m" -- python3 through.py "$PWD/m" look 2>&1 | tail -1)" ok
            "$bypath" mount -o atomic=$how "$PWD/k.img" k || fail "mount again"
        done
        "$bypath" umount k
        same "$how, check after servers" "$("$bypath" check k.img >/dev/null; echo $?)" 0
        rm -f k.img
    done
else
    echo "skip kernel mount: no /dev/fuse here: it is NOT tested"
fi
exit $failed
