# What takes set-id bits and file capabilities away, and what leaves them: each call, as root, as the owner, as another
# user and as a member of the group, on files with set-id bits, with a set-group-id that is not for execution, and with
# capabilities.
# ways: short both patched kernel host cached
# mode: 666
import ctypes, errno, mmap, os, sys

libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
CAPABILITY = "security.capability"
CAPS = bytes.fromhex("0100000200200000000000000000000000000000")
SIZE = 20000


def on(flags):
    """A call on a descriptor opened so."""
    def wrap(call):
        def run(path):
            fd = os.open(path, flags)
            try:
                call(fd)
            finally:
                os.close(fd)
        return run
    return wrap


def allocate(mode):
    def call(fd):
        if libc.fallocate(fd, mode, 4096, 8192):
            raise OSError(ctypes.get_errno(), "fallocate")
    return on(os.O_RDWR)(call)


def copy(fd):
    source = os.open("source", os.O_RDONLY)
    os.copy_file_range(source, fd, 50)
    os.close(source)


def send(fd):
    source = os.open("source", os.O_RDONLY)
    os.sendfile(fd, source, 0, 50)
    os.close(source)


def splice(fd):
    r, w = os.pipe()
    os.write(w, b"spliced")
    try:
        os.splice(r, fd, 7)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        os.write(fd, os.read(r, 7))
    os.close(r)
    os.close(w)


def store(fd):
    with mmap.mmap(fd, 4096) as m:
        m[10:13] = b"abc"
        m.flush()


def renamed(path):
    os.rename(path, path + ".r")
    os.rename(path + ".r", path)


def linked(path):
    os.link(path, path + ".l")


W, RW = os.O_WRONLY, os.O_RDWR
calls = {
    "write": on(W)(lambda fd: os.write(fd, b"x")),
    "write nothing": on(W)(lambda fd: os.write(fd, b"")),
    "pwrite": on(W)(lambda fd: os.pwrite(fd, b"x", 5)),
    "pwrite behind": on(W)(lambda fd: os.pwrite(fd, b"x", 50000)),
    "writev": on(W)(lambda fd: os.writev(fd, [b"x", b"y"])),
    "pwritev": on(W)(lambda fd: os.pwritev(fd, [b"x", b"y"], 5)),
    "append": on(W | os.O_APPEND)(lambda fd: os.write(fd, b"x")),
    "truncate": lambda path: os.truncate(path, 3),
    "truncate up": lambda path: os.truncate(path, SIZE + 5000),
    "truncate to the same": lambda path: os.truncate(path, SIZE),
    "ftruncate": on(W)(lambda fd: os.ftruncate(fd, 3)),
    "ftruncate to the same": on(W)(lambda fd: os.ftruncate(fd, SIZE)),
    "O_TRUNC": on(W | os.O_TRUNC)(lambda fd: None),
    "O_CREAT O_TRUNC": on(W | os.O_CREAT | os.O_TRUNC)(lambda fd: None),
    "allocate": allocate(0),
    "allocate, keep the size": allocate(1),
    "punch": allocate(3),
    "copy_file_range": on(W)(copy),
    "sendfile": on(W)(send),
    "splice": on(W)(splice),
    "store": on(RW)(store),
    "open alone": on(RW)(lambda fd: None),
    "chown to nobody": lambda path: os.chown(path, -1, -1),
    "chown to the same": lambda path: os.chown(path, os.stat(path).st_uid, -1),
    "chgrp": lambda path: os.chown(path, -1, os.getegid()),
    "lchown": lambda path: os.lchown(path, -1, os.getegid()),
    "fchown": on(os.O_RDONLY)(lambda fd: os.fchown(fd, -1, -1)),
    "chown to another": lambda path: os.chown(path, 77, 78),
    "chmod": lambda path: os.chmod(path, 0o2771),
    "link": linked,
    "rename": renamed,
    "utimes": lambda path: os.utime(path),
    "a user attribute": lambda path: os.setxattr(path, "user.x", b"1"),
    "capabilities": lambda path: os.setxattr(path, CAPABILITY, CAPS),
    "no capabilities": lambda path: os.removexattr(path, CAPABILITY),
}
# By the mount's requests a file server cannot tell who asks for these; nobody but the owner loses anything by them.
FOR_OWNERS = {"chown to nobody", "fchown"}
# uid, gid, groups
who = {"root": (0, 0, []), "owner": (1000, 50, []), "member": (1001, 50, [60]), "other": (1002, 50, [])}
kinds = {"set-id": 0o6777, "no set-group-id": 0o2767, "capable": 0o777}

os.umask(0)
os.chmod(".", 0o777)
with open("source", "wb") as f:
    f.write(bytes(range(100)))
for name, (uid, gid, groups) in who.items():
    files = [(kind, call) for kind in kinds for call in calls]
    for kind, call in files:
        path = f"{name} {kind} {call}"
        with open(path, "wb") as f:
            f.write(bytes(SIZE))
        os.chown(path, 1000, 60)
        os.chmod(path, kinds[kind])
        if kind == "capable":
            os.setxattr(path, "user.before", b"b" * 100)
            os.setxattr(path, CAPABILITY, CAPS)
            os.setxattr(path, "user.behind", b"c" * 100)
    r, w = os.pipe()
    if os.fork() == 0:
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
        told, owns = [], name in ("root", "owner")
        for kind, call in files:
            path, result = f"{name} {kind} {call}", "done"
            try:
                if owns or call not in FOR_OWNERS:
                    calls[call](path)
            except OSError as error:
                result = errno.errorcode[error.errno]
            told.append((kind, call, result, oct(os.stat(path).st_mode)))
        with open(w, "w") as f:
            print(*told, sep="\n", file=f)
        os._exit(0)
    os.close(w)
    told = open(r).read().splitlines()
    os.wait()
    for (kind, call), line in zip(files, told):
        path = f"{name} {kind} {call}"
        attributes = sorted(os.listxattr(path)) if kind == "capable" or call == "capabilities" else ""
        print(name, line, oct(os.stat(path).st_mode & 0o7777), *attributes)
sys.stdout.flush()
os.system("rm -rf ./*")
