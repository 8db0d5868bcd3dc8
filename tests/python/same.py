"""Goal: the module does what os, io and shutil do on tmpfs. Method: the same steps on both, and the same log of results.

A step's result is its value, or the error's class, number and path.
"""

import builtins
import io
import os
import random
import shutil
import stat
import unittest

import common


class Kernel:
    """os, io and shutil under the names that bypath.Namespace has."""

    def __init__(self, top):
        self.top = top

    def __getattr__(self, name):
        for place in (os, os.path, shutil):
            if hasattr(place, name):
                return getattr(place, name)
        raise AttributeError(name)

    open = staticmethod(builtins.open)

    @staticmethod
    def open_raw(path, flags=os.O_RDONLY, mode=0o666):
        return os.fdopen(os.open(path, flags, mode), "rb", 0)

    @staticmethod
    def read_bytes(path):
        with builtins.open(path, "rb") as file:
            return file.read()

    @staticmethod
    def write_bytes(path, data):
        with builtins.open(path, "wb") as file:
            return file.write(data)


class Log:
    """What each step gave."""

    def __init__(self, fs, top):
        self.fs, self.top, self.lines = fs, top, []

    def path(self, name):
        """A name below the top."""
        return os.path.join(self.top, name)

    def shown(self, value):
        """A value without what differs between any two file systems."""
        if isinstance(value, os.stat_result):
            size = value.st_size if stat.S_ISREG(value.st_mode) else None
            return "stat", value.st_mode, value.st_uid, value.st_gid, value.st_nlink, size
        if isinstance(value, str):
            return value.replace(self.top, "TOP")
        return value

    def do(self, what, *args, **named):
        """One step; its value, or None after an error."""
        call = getattr(self.fs, what) if isinstance(what, str) else what
        try:
            value = call(*args, **named)
        except (OSError, ValueError, TypeError, BufferError) as error:
            number = getattr(error, "errno", None)
            name = getattr(error, "filename", None)
            kind = type(error).__mro__[1] if type(error) is io.UnsupportedOperation else type(error)
            self.lines.append((str(what) if isinstance(what, str) else "", kind.__name__, number, self.shown(name)))
            return None
        self.lines.append((what if isinstance(what, str) else "", self.shown(value) if not hasattr(value, "read") else "file"))
        return value


def unnamed(call, *args):
    """A call whose error does not name its path."""
    try:
        call(*args)
    except OSError as error:
        raise OSError(error.errno, error.strerror) from None


def names(log):
    """Making, naming, removing; each error that is likely."""
    p, do = log.path, log.do
    do("mkdir", p("d"))
    do("mkdir", p("d"))
    do("mkdir", p("no/d"))
    do("makedirs", p("d/e/f"), exist_ok=True)
    do("makedirs", p("d/e/f"), exist_ok=True)
    do("makedirs", p("d/e/f"))
    do("write_bytes", p("d/x"), b"text")
    do("makedirs", p("d/x/y"), exist_ok=True)
    do("mkdir", p("d/x/y"))
    do("link", p("d/x"), p("d/hard"))
    do("link", p("none"), p("d/hard2"))
    do("symlink", "x", p("d/soft"))
    do("symlink", "nowhere", p("d/loose"))
    do("symlink", "loop", p("d/loop"))
    for name in ("d/x", "d/soft", "d/loose", "d/loop", "d", "none", "d/x/no", "d/" + "n" * 256):
        for call in ("stat", "lstat", "exists", "lexists", "isfile", "isdir", "islink", "readlink", "getsize", "listdir", "read_bytes"):
            value_wanted = call != "getsize" or name != "d"
            if call == "listdir" and name == "d":
                do(lambda: sorted(log.fs.listdir(p("d"))))
            elif value_wanted:
                do(call, p(name))
        for mode in (os.F_OK, os.R_OK | os.W_OK):
            do("access", p(name), mode)
    do("rename", p("d/x"), p("d/e/x"))
    do("rename", p("d/x"), p("d/e/x"))
    do("rename", p("d"), p("d/e/f/g"))
    do("replace", p("d/hard"), p("d/e/x"))
    do("rmdir", p("d"))
    do("rmdir", p("d/e/x"))
    do("remove", p("d/e"))
    do("unlink", p("d/none"))
    do("remove", p("d/loose"))
    do("stat", "")
    do("stat", p("a\0b"))
    do("rmtree", p("d/e"))
    do(lambda: sorted(log.fs.listdir(os.fsencode(p("d")))))
    do(lambda: sorted(log.fs.listdir(p("d"))))
    do("rmtree", p("d"))
    do("exists", p("d"))


def attributes(log):
    """Modes, owners, times, extended attributes."""
    p, do = log.path, log.do
    do("write_bytes", p("f"), b"12345")
    do("symlink", "f", p("s"))
    do("chmod", p("f"), 0o640)
    do("chown", p("f"), -1, -1)
    do("chown", p("s"), os.getuid(), os.getgid(), follow_symlinks=False)
    do("utime", p("f"), (1.5, 1700000000.25))
    do(lambda: (log.fs.stat(p("f")).st_mtime_ns, log.fs.stat(p("f")).st_mtime, log.fs.stat(p("f")).st_atime_ns))
    do("utime", p("f"), ns=(12345678901234567, 1234567890123456789))
    do(lambda: log.fs.stat(p("f")).st_mtime_ns)
    do("utime", p("s"), ns=(7, 8), follow_symlinks=False)
    do(lambda: (log.fs.lstat(p("s")).st_mtime_ns, log.fs.stat(p("s")).st_mtime_ns, log.fs.lstat(p("s")).st_mtime))
    do("utime", p("f"), (1, 2), ns=(1, 2))
    do("utime", p("f"))
    # os does not name the file here.
    do(lambda: log.fs.utime(p("none")) if isinstance(log.fs, Kernel) else unnamed(log.fs.utime, p("none")))
    do("stat", p("f"))
    do("truncate", p("f"), 2)
    do("truncate", p("f"), -1)
    do("read_bytes", p("f"))
    do("truncate", p("f"), 4)
    do("read_bytes", p("f"))
    do(lambda: log.fs.statvfs(p("f")).f_namemax)
    do("setxattr", p("f"), "user.a", b"value\0x")
    do("getxattr", p("f"), "user.a")
    do("getxattr", p("f"), b"user.a")
    do("setxattr", p("f"), "user.a", b"v", os.XATTR_CREATE)
    do("listxattr", p("f"))
    do("removexattr", p("f"), "user.a")
    do("removexattr", p("f"), "user.a")
    do("getxattr", p("f"), "user.a")
    do("mkfifo", p("fifo"))
    do(lambda: stat.S_ISFIFO(log.fs.stat(p("fifo")).st_mode))


def streams(log):
    """Files by every mode of open(), and what io's layers do on top."""
    p, do = log.path, log.do

    def step(name, mode, work, **named):
        file = do("open", p(name), mode, **named)
        if file is not None:
            with file:
                do(work, file)
                do(lambda: (file.readable(), file.writable(), file.seekable(), file.closed))
            do(lambda: file.closed)
            do(file.read)

    for mode in ("r", "rb", "r+", "w", "wb", "wb+", "a", "ab", "a+", "x", "xb", "w+", "q", "rw", "r+b", "tb", "", "rbt"):
        step("none" if mode.startswith("r") else "f" + mode, mode, lambda file: file.mode)
        step("fw", mode, lambda file: file.mode)
    step("t", "w", lambda f: f.write("one\ntwo\r\nthree\u00e4"), encoding="utf-8")
    step("t", "r", lambda f: f.readlines(), encoding="utf-8")
    step("t", "r", lambda f: f.readlines(), encoding="utf-8", newline="")
    step("t", "r", lambda f: f.read(), encoding="ascii", errors="replace")
    step("t", "r", lambda f: f.read(), encoding="ascii")
    step("t", "rb", lambda f: (f.read(3), f.tell(), f.seek(-2, 2), f.read(), f.read(), f.read(1)))
    step("t", "rb", lambda f: f.write(b"x"))
    step("t", "rb", lambda f: f.truncate(1))
    step("t", "wb", lambda f: f.read())
    step("t", "rb", lambda f: f.read(), buffering=0)
    step("t", "r", lambda f: f.read(), buffering=0)
    step("t", "rb", lambda f: f.read(), encoding="utf-8")
    step("t", "w+b", lambda f: (f.write(b"abcdef"), f.seek(2), f.read(2), f.write(b"X"), f.seek(0), f.read()))
    step("t", "ab", lambda f: (f.tell(), f.write(b"end"), f.tell()))
    step("t", "r+b", lambda f: (f.truncate(4), f.read(), f.seek(8), f.write(b"far"), f.flush()), buffering=0)
    step("t", "rb", lambda f: f.read())
    step("t", "rb", lambda f: (f.seek(-1)))
    step("t", "rb", lambda f: f.raw.read(2), buffering=100)
    step("t", "wb", lambda f: (f.write(bytearray(b"1")), f.write(memoryview(b"23")), f.write("text")))
    step("t", "wb", lambda f: f.writelines([b"a", b"b"]))
    do("mkdir", p("dir"))
    for mode in ("r", "rb", "w", "r+"):
        step("dir", mode, lambda f: f.read())
    step("big", "wb", lambda f: f.write(bytes(range(256)) * 5000))
    step("big", "rb", lambda f: sum(f.read()))
    step("big", "rb", lambda f: [len(part) for part in iter(lambda: f.read(99999), b"")])
    step("big", "rb", lambda f: (f.readinto(bytearray(70000)), f.tell()))
    step("big", "rb", lambda f: f.readinto(b"constant"))
    do("copyfile", p("big"), p("copy"))
    do("copyfile", p("big"), p("big"))
    do("copyfile", p("none"), p("copy2"))
    do("copyfile", p("big"), p("dir"))
    do(lambda: log.fs.read_bytes(p("copy")) == log.fs.read_bytes(p("big")))
    do(lambda: sum(log.fs.read_bytes(p("big"))))
    do(lambda: log.fs.stat(p("big")))


def trees(log):
    """scandir and walk."""
    p, fs, do = log.path, log.fs, log.do
    for name in ("t/a/b", "t/c", "t/d/e/f"):
        fs.makedirs(p(name))
    for name in ("t/1", "t/a/2", "t/d/e/3"):
        fs.write_bytes(p(name), name.encode())
    fs.symlink("a", p("t/la"))
    fs.symlink("1", p("t/l1"))
    fs.symlink("none", p("t/ln"))

    def entries():
        with fs.scandir(p("t")) as found:
            return sorted(
                (e.name, e.path.replace(log.top, "TOP"), e.is_dir(), e.is_dir(follow_symlinks=False), e.is_file(), e.is_symlink())
                + (e.is_file(follow_symlinks=False), e.inode() == fs.lstat(e.path).st_ino, os.fspath(e) == e.path)
                for e in found
            )

    def walked(**named):
        found = []
        for top, directories, files in fs.walk(p("t"), **named):
            directories.sort()
            found.append((top.replace(log.top, "TOP"), list(directories), sorted(files)))
        return found if named.get("topdown", True) else sorted(found)

    do(entries)
    do(lambda: [log.shown(e.stat()) for e in sorted(fs.scandir(p("t")), key=lambda e: e.name) if e.name != "ln"])
    do(lambda: [log.shown(e.stat(follow_symlinks=False)) for e in sorted(fs.scandir(p("t")), key=lambda e: e.name)])
    do(lambda: [e.stat() for e in fs.scandir(p("t")) if e.name == "ln"])
    do(walked)
    do(walked, topdown=False)
    do(walked, followlinks=True)
    do(lambda: list(fs.walk(p("none"))))
    told = []
    do(lambda: list(fs.walk(p("none"), onerror=lambda error: told.append(error.errno))))
    log.lines.append(told)
    do("scandir", p("none"))
    do("scandir", p("t/1"))
    fs.mkdir(p("many"))
    for number in range(3000):
        fs.write_bytes(p(f"many/name-{number:05}"), b"")
    do(lambda: sorted(fs.listdir(p("many"))))
    do(lambda: sorted(e.name for e in fs.scandir(p("many"))))
    do("rmtree", p("many"))
    do("rmtree", p("t/la"))
    do("rmtree", p("none"))


def files_at_random(log):
    """2,000 reads, writes, seeks and cuts of one open file, from one seed."""
    draw = random.Random(7)
    file = log.fs.open(log.path("r"), "w+b", 0)
    for _ in range(2000):
        kind = draw.randrange(5)
        if kind == 0:
            log.do(file.write, draw.randbytes(draw.randrange(5000)) if hasattr(draw, "randbytes") else bytes(draw.randrange(5000)))
        elif kind == 1:
            log.do(file.read, draw.randrange(5000))
        elif kind == 2:
            log.do(file.seek, draw.randrange(-100, 60000))
        elif kind == 3:
            log.do(file.seek, draw.randrange(-2000, 2000), draw.choice((1, 2)))
        else:
            log.do(file.truncate, draw.randrange(60000))
    log.do(file.seek, 0)
    log.do(file.readall)
    file.close()


class Same(unittest.TestCase):
    """Each list of steps on an image and on tmpfs; on a directory of the kernel's, too."""

    def check(self, steps, source="image"):
        with common.scratch() as directory, common.namespace(directory, source) as fs:
            top = os.path.join(directory, "kernel")
            os.mkdir(top)
            kernel = Log(Kernel(top), top)
            steps(kernel)
            fs.mkdir("/top")
            ours = Log(fs, "/top")
            steps(ours)
        self.assertGreater(len(kernel.lines), 10)
        pairs = enumerate(zip(kernel.lines, ours.lines))
        differ = [f"step {number}: {str(wanted)[:200]}, here {str(got)[:200]}" for number, (wanted, got) in pairs if wanted != got]
        self.assertEqual(differ, [], "\n".join(differ[:10]))
        self.assertEqual(len(kernel.lines), len(ours.lines))


for steps in (names, attributes, streams, trees, files_at_random):
    for source in ("image", "host"):
        # A directory of the kernel's makes no FIFOs here.
        if (steps, source) != (attributes, "host"):
            setattr(Same, f"test_{steps.__name__}_{source}", lambda self, s=steps, f=source: self.check(s, f))

