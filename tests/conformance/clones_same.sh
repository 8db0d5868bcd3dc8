#!/bin/bash
# own
# needs: python3
# seconds: 20
# FIDEDUPERANGE has files that have the same bytes share them, and others not; FIEMAP says where bytes lie, and which are shared.
# Answers and errors are those of vfs_dedupe_file_range and fiemap_prep in the kernel, which XFS and Btrfs give.
set -u
. "$(dirname "$0")/own.sh"
failed=0
cat >same.py <<'P'
import ctypes, errno, fcntl, mmap, os, random, struct, sys
os.chdir(sys.argv[1])
FIDEDUPERANGE, FIEMAP, FICLONE, BLOCK = 0xC0189436, 0xC020660B, 0x40049409, 4096
libc, failed = ctypes.CDLL(None, use_errno=True), 0
def check(ok, what):
    global failed
    if not ok:
        failed += 1
        print("wrong:", what)
def request(fd, at, length, targets, reserved=0, count=None):
    """What it answers: an error, or (bytes, status) of each target."""
    buffer = bytearray(struct.pack("QQHHI", at, length, len(targets) if count is None else count, reserved, 0))
    for target in targets:
        buffer += struct.pack("qQQiI", target[0], target[1], 99, 99, target[2] if len(target) > 2 else 0)
    raw = (ctypes.c_char * len(buffer)).from_buffer(buffer)
    if libc.ioctl(fd, ctypes.c_ulong(FIDEDUPERANGE), raw) != 0:
        return ctypes.get_errno()
    return [struct.unpack_from("qQQiI", buffer, 24 + 32 * i)[2:4] for i in range(len(targets))]
def runs(fd, start=0, length=2**64 - 1, flags=0, room=100):
    """The extents, or an error: start, place, length, flags."""
    buffer = bytearray(struct.pack("QQIIII", start, length, flags, 77, room, 0)) + bytearray(56 * room)
    raw = (ctypes.c_char * len(buffer)).from_buffer(buffer)
    result = libc.ioctl(fd, ctypes.c_ulong(FIEMAP), raw)
    mapped = struct.unpack_from("QQIIII", buffer)[3]
    if result != 0:
        return (ctypes.get_errno(), struct.unpack_from("QQIIII", buffer)[2])
    if room == 0:
        return mapped
    rows = [struct.unpack_from("QQQQQIIII", buffer, 32 + 56 * i) for i in range(mapped)]
    return [(row[0], row[1], row[2], row[5]) for row in rows]
LAST, SHARED = 1, 0x2000
bytes_of = random.Random(1).randbytes(40 * BLOCK + 100)
def make(name, data):
    with open(name, "wb") as f:
        f.write(data)
    return os.open(name, os.O_RDWR)
a, b, c = make("a", bytes_of), make("b", bytes_of), make("c", bytes_of)
different = make("different", bytes_of[: 20 * BLOCK] + b"x" + bytes_of[20 * BLOCK + 1 :])
size = len(bytes_of)
os.utime("b", ns=(10**18, 10**18 + 5))
before = os.stat("b")

# Nothing is shared yet.
rows = runs(a)
check([row[3] for row in rows] == [0] * (len(rows) - 1) + [LAST], rows)
check(sum(row[2] for row in rows) == 41 * BLOCK, rows)

# Two targets at once, one that differs, one that is not there.
check(request(a, 0, size, [(b, 0), (different, 0), (12345, 0), (c, 0)]) == [(size, 0), (0, 1), (0, -errno.EBADF), (size, 0)], "four targets")
after = os.stat("b")
check((before.st_mtime_ns, before.st_ctime_ns, before.st_size) == (after.st_mtime_ns, after.st_ctime_ns, after.st_size), "times")
check(all(row[3] & SHARED for row in runs(a)), runs(a))
place = lambda fd: [(row[0], row[1], row[2]) for row in runs(fd)]
check(place(a) == place(b) == place(c), "they lie in the same places")
check(not any(row[3] & SHARED for row in runs(different)), runs(different))
check(request(a, 0, size, [(b, 0)]) == [(size, 0)], "again")

# A part; a write breaks it apart again, and FIEMAP says where.
check(request(a, 0, 20 * BLOCK, [(different, 0)]) == [(20 * BLOCK, 0)], "a part")
os.pwrite(different, b"own", 3 * BLOCK)
flags = {}
for start, _, length, flag in runs(different):
    for block in range(start // BLOCK, (start + length) // BLOCK):
        flags[block] = flag & SHARED
check([block for block in range(41) if flags.get(block) == 0] == [3] + list(range(20, 41)), flags)
for fd, data in [(a, bytes_of), (b, bytes_of), (c, bytes_of)]:
    check(os.pread(fd, size, 0) == data, "bytes")
check(os.pread(different, 20 * BLOCK, 0) == bytes_of[: 3 * BLOCK] + b"own" + bytes_of[3 * BLOCK + 3 : 20 * BLOCK], "bytes of the part")

# Within one file; a last block that is no whole one counts only where both end.
twice = make("twice", bytes_of[: 8 * BLOCK] * 2)
check(request(twice, 0, 8 * BLOCK, [(twice, 8 * BLOCK)]) == [(8 * BLOCK, 0)], "within a file")
check(os.pread(twice, 20 * BLOCK, 0) == bytes_of[: 8 * BLOCK] * 2, "bytes of it")
tail = make("tail", bytes_of[: BLOCK + 100] + b"z")
check(request(a, 0, BLOCK + 100, [(tail, 0)]) == [(BLOCK + 100, 0)], "a part of a block")
check([row[3] & SHARED for row in runs(tail)] in ([SHARED, 0],), runs(tail))

# Holes are zeros.
hole, zeros = make("hole", b""), make("zeros", bytes(16 * BLOCK))
os.ftruncate(hole, 16 * BLOCK)
check(request(hole, 0, 16 * BLOCK, [(zeros, 0)]) == [(16 * BLOCK, 0)], "a hole")
check(runs(zeros) == [] and os.fstat(zeros).st_blocks == 0 and os.pread(zeros, 1 << 20, 0) == bytes(16 * BLOCK), "and a hole it is")

# What cannot be.
read, write = os.open("a", os.O_RDONLY), os.open("b", os.O_WRONLY)
for wanted, got in [
    (errno.EINVAL, request(write, 0, BLOCK, [(b, 0)])),
    (errno.EINVAL, request(a, 0, BLOCK, [(b, 0)], reserved=1)),
    (errno.EINVAL, request(a, 0, size + 1, [(b, 0)])),
    (errno.EINVAL, request(a, 1 << 63, BLOCK, [(b, 0)])),
    (errno.EISDIR, request(os.open(".", os.O_RDONLY), 0, BLOCK, [(b, 0)])),
    (errno.ENOMEM, request(a, 0, BLOCK, [(b, 0)], count=128)),
    ([(0, -errno.EINVAL)], request(a, 1, BLOCK, [(b, 1)])),
    ([(0, -errno.EINVAL)], request(a, 0, BLOCK, [(b, 7)])),
    ([(0, -errno.EINVAL)], request(a, 0, BLOCK, [(b, 0, 1)])),
    ([(0, -errno.EINVAL)], request(a, 0, 2 * BLOCK, [(a, BLOCK)])),
    ([(0, -errno.EINVAL)], request(a, 0, 2 * BLOCK, [(b, 40 * BLOCK)])),
    ([(0, -errno.EISDIR)], request(a, 0, BLOCK, [(os.open(".", os.O_RDONLY), 0)])),
    ([(0, -errno.EXDEV)], request(a, 0, BLOCK, [(os.open("/proc/self/maps", os.O_RDONLY), 0)])),
    ([(0, 0)], request(a, 0, 0, [(b, 0)])),
    ([], request(a, 0, BLOCK, [])),
    ((errno.EINVAL, 0), runs(a, length=0)),
    ((errno.EFBIG, 0), runs(a, start=1 << 62)),
    ((errno.EBADR, 2), runs(a, flags=3)),
    (1, runs(a, length=BLOCK, room=0)),
]:
    check(wanted == got, "%s is %s" % (wanted, got))
check(libc.ioctl(a, ctypes.c_ulong(FIDEDUPERANGE), 8) == -1 and ctypes.get_errno() == errno.EFAULT, "EFAULT")
check(libc.ioctl(os.open(".", os.O_RDONLY), ctypes.c_ulong(FIEMAP), 8) == -1 and ctypes.get_errno() == errno.EOPNOTSUPP, "a directory")
check(len(runs(a, room=1)) == 1 and runs(a, start=size + BLOCK) == [], "a part of the map")

# What is mapped can't be compared: what is stored into it is not seen.
with mmap.mmap(c, 0) as kept:
    check(request(a, 0, size, [(c, 0)])[0][1] == -errno.EOPNOTSUPP, "mapped")

# One who may not write, and has not opened it for that.
if os.getuid() == 0:
    os.chmod("b", 0o644)
    pid = os.fork()
    if pid == 0:
        os.setgid(65534)
        os.setuid(65534)
        got = request(read, 0, BLOCK, [(os.open("b", os.O_RDONLY), 0)])
        os._exit(got != [(0, -errno.EPERM)])
    check(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, "EPERM")

# Random ranges against what the bytes say.
rng = random.Random(5)
x = bytearray(rng.choice([b"p", b"q"]) * BLOCK for _ in range(0)) or bytearray(b"".join(rng.choice([b"p", b"q"]) * BLOCK for _ in range(64)))
y = bytearray(b"".join(rng.choice([b"p", b"q"]) * BLOCK for _ in range(64)))
fx, fy = make("x", x), make("y", y)
for turn in range(400):
    at, to, length = rng.randrange(60), rng.randrange(60), rng.randrange(1, 5)
    at, to = min(at, 64 - length), min(to, 64 - length)
    data = [bytes(x[at * BLOCK : (at + length) * BLOCK]), bytes(y[to * BLOCK : (to + length) * BLOCK])]
    wanted = [(length * BLOCK, 0)] if data[0] == data[1] else [(0, 1)]
    check(request(fx, at * BLOCK, length * BLOCK, [(fy, to * BLOCK)]) == wanted, ("turn", turn))
    if turn % 3 == 0:
        block, letter = rng.randrange(64), rng.choice([b"p", b"q"])
        fd, data = rng.choice([(fx, x), (fy, y)])
        data[block * BLOCK : (block + 1) * BLOCK] = letter * BLOCK
        os.pwrite(fd, letter * BLOCK, block * BLOCK)
check(os.pread(fx, 1 << 20, 0) == x and os.pread(fy, 1 << 20, 0) == y, "bytes after that")
print("ok   same" if not failed else "FAIL same: %d" % failed)
sys.exit(failed != 0)
P
"$bypath" mkfs --size 64M image >/dev/null || fail mkfs
mkdir m
"$bypath" run --no-fuse --mount "image:$work/m" -- python3 same.py m || failed=1
"$bypath" check image >checked || { cat checked && failed=1; }
if command -v filefrag >/dev/null; then
    "$bypath" run --no-fuse --mount "image:$work/m" -- filefrag -v m/a | grep -q 'last.*shared\|shared.*last' || { echo 'filefrag does not say that it is shared' && failed=1; }
fi
exit $failed
