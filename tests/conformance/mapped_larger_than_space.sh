#!/bin/bash
# A sparse file larger than the image, mapped to be written: pages come with the first store, the mapping alone takes
# nothing, and a store without space raises SIGBUS.
# own
set -eu
S=$PWD
"$BYPATH" mkfs "$S/i.img" --size 64M >/dev/null
mkdir "$S/m"
"$BYPATH" run --no-fuse -m "$S/i.img:$S/m" -- python3 - "$S/m" <<'X'
import ctypes, mmap, os, signal, sys

os.chdir(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)


def free():
    st = os.statvfs(".")
    return st.f_bavail * st.f_frsize


def taken(fd):
    return os.fstat(fd).st_blocks * 512


before = free()
fd = os.open("read", os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 10 << 30)
reads = mmap.mmap(fd, 10 << 30, mmap.MAP_SHARED, mmap.PROT_READ)
assert reads[5 << 30] == 0 and reads[(10 << 30) - 1] == 0 and reads[:1 << 20].count(0) == 1 << 20
assert taken(fd) == 0 and before - free() < 1 << 20, "only read"
os.pwrite(fd, b"there", 7 << 30)
assert reads[7 << 30:(7 << 30) + 5] == b"there"

fd = os.open("written", os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 10 << 30)
before = free()
writes = mmap.mmap(fd, 10 << 30)
assert taken(fd) == 0 and before - free() < 1 << 20, "mapped to be written"
writes[9 << 30] = 7
writes[(9 << 30) + 4096] = 8
assert os.pread(fd, 1, 9 << 30) == b"\7" and 0 < taken(fd) <= 1 << 20
# The kernel puts what it reads there, too, and so does a call of ours.
ends = os.pipe()
os.write(ends[1], b"p" * 8192)
view = (ctypes.c_char * 8192).from_buffer(writes, 3 << 30)
assert libc.read(ends[0], view, 8192) == 8192 and writes[(3 << 30) + 8191] == ord("p")
view = (ctypes.c_char * 8192).from_buffer(writes, 4 << 30)
assert libc.pread(fd, view, 8192, ctypes.c_long(3 << 30)) == 8192 and writes[(4 << 30) + 8191] == ord("p")
view = (ctypes.c_char * 8192).from_buffer(writes, 6 << 30)
assert libc.pwrite(fd, view, 8192, ctypes.c_long(3 << 30)) == 8192 and writes[3 << 30] == 0
# Other mappings of it are of the same pages, in other processes as well.
other = mmap.mmap(fd, 10 << 30, mmap.MAP_SHARED, mmap.PROT_READ)
if os.fork() == 0:
    writes[2 << 30] = 9
    os._exit(0)
os.wait()
assert other[2 << 30] == 9 and writes[2 << 30] == 9
other.close()
# All advice that makes pages, and mprotect, do not make them elsewhere.
address = ctypes.addressof((ctypes.c_char * 1).from_buffer(writes))
at = ctypes.c_void_p(address + (1 << 30))
assert libc.madvise(at, 65536, 23) == 0
assert libc.mprotect(at, ctypes.c_size_t(1 << 20), 1) == 0 and libc.mprotect(at, ctypes.c_size_t(1 << 20), 3) == 0
writes[(1 << 30) + (1 << 19)] = 5
assert os.pread(fd, 1, (1 << 30) + (1 << 19)) == b"\5"
assert libc.madvise(at, ctypes.c_size_t(1 << 20), 9) == 0 and os.pread(fd, 1, (1 << 30) + (1 << 19)) == b"\0"
# To the end of the space.
child = os.fork()
if child == 0:
    for page in range(0, 1 << 30, 4096):
        writes[page] = 1
    os._exit(0)
assert os.waitpid(child, 0)[1] == signal.SIGBUS
os.ftruncate(fd, 0)
del view
os.close(fd)
os._exit(0)
X
"$BYPATH" run --no-fuse -m "$S/i.img:$S/m" -- python3 -c "
import os, sys
os.unlink('$S/m/written')
st = os.statvfs('$S/m')
assert st.f_bavail * st.f_frsize > 50 << 20, st"
"$BYPATH" check "$S/i.img" >/dev/null
