# A file without a name gets one through its descriptor, and so does one that is open as a path only.
# ways: short both patched kernel host cached
import os, ctypes
libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, EMPTY, FOLLOW = -100, 0x1000, 0x400

def link(source, path, name, flags):
    result = libc.linkat(source, path.encode(), AT_FDCWD, name.encode(), flags)
    print(name, "ok" if result == 0 else os.strerror(ctypes.get_errno()))

fd = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o640)
os.write(fd, b"text")
link(AT_FDCWD, f"/proc/self/fd/{fd}", "one", FOLLOW)
link(AT_FDCWD, f"/proc/self/fd/{fd}", "one", FOLLOW)
link(fd, "", "two", EMPTY)
print(open("one").read(), os.stat("two").st_nlink, os.fstat(fd).st_ino == os.stat("one").st_ino)
never = os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_EXCL, 0o640)
link(AT_FDCWD, f"/proc/self/fd/{never}", "never", FOLLOW)
path = os.open("one", os.O_PATH)
link(path, "", "three", EMPTY)
link(AT_FDCWD, f"/proc/self/fd/{path}", "missing/four", FOLLOW)
link(AT_FDCWD, f"/proc/self/fd/{path}", "five/", FOLLOW)
os.unlink("one"), os.unlink("two"), os.unlink("three")
link(AT_FDCWD, f"/proc/self/fd/{fd}", "gone", FOLLOW)
