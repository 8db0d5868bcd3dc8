#!/bin/bash
# Files that share their data by FICLONE, FICLONERANGE and copy_file_range are written to in every way there is: none shows
# what another one got, the space is what was not shared, and all of it is back when they are gone. Errors are those of XFS.
# `cp --reflink=always` works, of a tree too; a full image says so and loses nothing; a kernel mount beside sees the same.
# own
# needs: python3
# seconds: 120
set -u
. "$(dirname "$0")/own.sh"
failed=0
cat >clones.py <<'P'
# clones.py DIR
import ctypes, errno, fcntl, mmap, os, random, struct, sys

FICLONE, FICLONERANGE, BLOCK = 0x40049409, 0x4020940D, 4096
os.chdir(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
failed = 0


def check(is_right, what):
    global failed
    if not is_right:
        failed += 1
        print("FAIL", what)


def clone(source, target):
    with open(source, "rb") as a, open(target, "wb") as b:
        fcntl.ioctl(b, FICLONE, a.fileno())


def clone_range(a, at, length, b, to):
    fcntl.ioctl(b, FICLONERANGE, struct.pack("qQQQ", a, at, length, to))


def error_of(what, *how):
    try:
        what(*how)
        return 0
    except OSError as error:
        return error.errno


def punch(fd, at, length, mode=3):
    if libc.fallocate(fd, mode, ctypes.c_long(at), ctypes.c_long(length)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


def used():
    s = os.statvfs(".")
    return (s.f_blocks - s.f_bfree) * s.f_bsize


def bytes_of(name):
    with open(name, "rb") as file:
        return file.read()


empty = used()
base = random.Random(1).randbytes(8_000_123)
with open("base", "wb") as file:
    file.write(base)
one = used() - empty
names = ["c%02d" % i for i in range(20)]
for name in names:
    clone("base", name)
check(used() - empty < one + (1 << 20), "20 clones take %d bytes, one file %d" % (used() - empty, one))
for name in names:
    check(os.stat(name).st_blocks == os.stat("base").st_blocks, "st_blocks")

# Each clone is changed in another way; the model is bytes.
model = {name: bytearray(base) for name in names}
fds = {name: os.open(name, os.O_RDWR) for name in names}


def put(name, at, data):
    end = at + len(data)
    if len(model[name]) < end:
        model[name].extend(bytes(end - len(model[name])))
    model[name][at:end] = data


def write(name, at, data):
    assert os.pwrite(fds[name], data, at) == len(data)
    put(name, at, data)


write(names[0], 0, b"first")
write(names[1], 4_000_000, b"x" * 100_000)
write(names[2], len(base), b"appended")
os.ftruncate(fds[names[3]], 5_000_001)
del model[names[3]][5_000_001:]
os.ftruncate(fds[names[3]], 6_000_000)
model[names[3]].extend(bytes(999_999))
punch(fds[names[4]], 10_000, 3_000_000)
model[names[4]][10_000:3_010_000] = bytes(3_000_000)
punch(fds[names[5]], 70_000, 20_000, 16)
model[names[5]][70_000:90_000] = bytes(20_000)
with mmap.mmap(fds[names[6]], 1 << 20) as mapped:
    mapped[5000:5006] = b"stored"
put(names[6], 5000, b"stored")
kept = mmap.mmap(fds[names[7]], 1 << 20)
clone(names[7], "of mapped")
kept[9000:9004] = b"late"
put(names[7], 9000, b"late")
check(bytes_of("of mapped") == base, "a clone of a mapped file shows what was stored later")
private = mmap.mmap(fds[names[8]], 1 << 20, mmap.MAP_PRIVATE)
private[0:4] = b"mine"
write(names[9], 12_345, b"other")
os.unlink(names[10])
del model[names[10]]
os.rename(names[11], names[12])
model[names[12]] = model.pop(names[11])
fds[names[12]] = fds[names[11]]
os.writev(fds[names[13]], [b"a" * 5000, b"b" * 5000])
put(names[13], 0, b"a" * 5000 + b"b" * 5000)
other = os.open("base", os.O_RDONLY)
os.lseek(other, 100, 0)
os.lseek(fds[names[14]], 200, 0)
os.sendfile(fds[names[14]], other, None, 300_000)
put(names[14], 200, base[100:300_100])
os.copy_file_range(other, fds[names[15]], 1 << 20, 0, 4 << 20)
put(names[15], 4 << 20, base[: 1 << 20])
punch(fds[names[16]], 0, 9 << 20, 0)
model[names[16]].extend(bytes((9 << 20) - len(base)))
clone_range(other, 1 << 20, 1 << 20, fds[names[17]], 2 << 20)
put(names[17], 2 << 20, base[1 << 20 : 2 << 20])
clone_range(fds[names[18]], 0, 1 << 20, fds[names[18]], 3 << 20)
put(names[18], 3 << 20, base[: 1 << 20])
rng = random.Random(2)
for _ in range(300):
    name = rng.choice(sorted(model))
    write(name, rng.randrange(len(base)), rng.randbytes(rng.randrange(1, 9000)))
for name in model:
    check(bytes_of(name) == model[name], name)
check(bytes_of("base") == base, "base")

# Holes beside fresh clones.
hole = os.open("hole", os.O_RDWR | os.O_CREAT, 0o600)
os.pwrite(hole, b"data", 1 << 20)
clone("hole", "hole clone")
cloned = os.open("hole clone", os.O_RDONLY)
for fd in (hole, cloned):
    check(os.lseek(fd, 0, os.SEEK_DATA) == 1 << 20 and os.lseek(fd, 0, os.SEEK_HOLE) == 0, "SEEK_DATA")

# What cannot be.
a, b = os.open("base", os.O_RDONLY), os.open("new", os.O_RDWR | os.O_CREAT, 0o600)
for expected, what in [
    (errno.EINVAL, lambda: clone_range(a, 1, BLOCK, b, 0)),
    (errno.EINVAL, lambda: clone_range(a, 0, 100, b, 0)),
    (errno.EINVAL, lambda: clone_range(a, 0, BLOCK, b, 7)),
    (errno.EINVAL, lambda: clone_range(a, 0, 1 << 40, b, 0)),
    (errno.EINVAL, lambda: clone_range(fds[names[0]], 0, 2 * BLOCK, fds[names[0]], BLOCK)),
    (errno.EINVAL, lambda: fcntl.ioctl(fds[names[0]], FICLONE, fds[names[0]])),
    (errno.EBADF, lambda: fcntl.ioctl(a, FICLONE, b)),
    (errno.EBADF, lambda: fcntl.ioctl(b, FICLONE, 12345)),
    (errno.EBADF, lambda: fcntl.ioctl(os.open("new", os.O_WRONLY | os.O_APPEND), FICLONE, a)),
    (errno.EBADF, lambda: fcntl.ioctl(b, FICLONE, os.open("base", os.O_WRONLY))),
    (errno.EISDIR, lambda: fcntl.ioctl(b, FICLONE, os.open(".", os.O_RDONLY))),
    (errno.EXDEV, lambda: fcntl.ioctl(b, FICLONE, os.open("/proc/self/maps", os.O_RDONLY))),
    (errno.EFAULT, lambda: libc.ioctl(b, FICLONERANGE, 8) and (_ for _ in ()).throw(OSError(ctypes.get_errno(), ""))),
]:
    check(error_of(what) == expected, "%d is %d" % (error_of(what), expected))
check(os.fstat(b).st_size == 0, "what fails changes nothing")

kept.close()
private.close()
for fd in list(fds.values()) + [other, hole, cloned, a, b]:
    try:
        os.close(fd)
    except OSError:
        pass
for name in os.listdir("."):
    os.unlink(name)
os.closerange(3, 100)
check(used() <= empty + (1 << 16), "%d bytes are in use when all is gone, %d before" % (used(), empty))
print("ok   clones" if not failed else "FAIL clones: %d" % failed)
sys.exit(failed != 0)
P
"$bypath" mkfs --size 256M image >/dev/null || fail mkfs
mkdir m
for way in --no-fuse ''; do
    "$bypath" run $way --mount "image:$work/m" -- python3 clones.py m || failed=1
    "$bypath" check image >/dev/null || fail "check after $way"
done

# cp: a tree, told from its copy by nothing; an edit of the one is not one of the other.
"$bypath" run --no-fuse --mount "image:$work/m" -- sh -c '
    cd m && mkdir tree && cp -r /usr/include/linux tree/ && du -s tree | cut -f1 >before &&
    cp -r --reflink=always tree clone && cp --reflink=always clone/linux/fs.h single && diff -r tree clone &&
    echo changed >>clone/linux/fs.h && echo changed >clone/linux/types.h && cmp single tree/linux/fs.h && cmp single tree/linux/fs.h &&
    ! diff -rq tree clone >/dev/null && rm -r tree && cat clone/linux/*.h >/dev/null && rm -r clone single before' || fail "cp --reflink"
"$bypath" check image >/dev/null || fail "check after cp"
same "what is shared when all is gone" "$("$bypath" dump image | grep -c 'is shared')" 0

# Full: a write into a clone is refused, and everybody has what he had.
"$bypath" run --no-fuse --mount "image:$work/m" -- sh -c '
    cd m && head -c 1000000 /dev/urandom >a && cp --reflink=always a b && sum=$(cksum <a)
    cat /dev/zero >filler 2>/dev/null
    ! dd if=/dev/zero of=b bs=4096 count=100 seek=10 conv=notrunc 2>/dev/null
    [ "$(cksum <a)" = "$sum" ] && [ "$(cksum <b)" = "$sum" ] && rm a filler && echo more >>b && rm b' || fail "full image"
"$bypath" check image >/dev/null || fail "check after a full image"
exit $failed
