"""Goal: Python's os module gives the same results in a mount as in tmpfs.

Usage: calls.py DIR — prints one line a call. Run it in two directories and
compare. Everything that may differ (inode numbers, times, the directory's own
path, free descriptor numbers after libc used some) is left out or made relative.
"""
import errno, fcntl, mmap, os, select, stat, struct, sys, threading

base = sys.argv[1]
many = len(sys.argv) < 3 or sys.argv[2] != "alone"  # other processes see the files
n = 0


def show(value):
    if isinstance(value, os.stat_result):
        return "mode=%o nlink=%d uid=%d gid=%d size=%s" % (
            value.st_mode, value.st_nlink, value.st_uid, value.st_gid,
            value.st_size if not stat.S_ISDIR(value.st_mode) else "-")
    if isinstance(value, str):
        return repr(value.replace(base, "BASE"))
    return repr(value)


def t(what, *args, **named):
    global n
    n += 1
    try:
        result = what(*args, **named)
    except OSError as e:
        print(n, getattr(what, "__name__", what), "->", errno.errorcode.get(e.errno, e.errno), flush=False)
        return None
    print(n, getattr(what, "__name__", what), "->", show(result))
    return result


def p(*parts):
    return os.path.join(base, *parts)


os.chdir("/")
os.umask(0o022)
t(os.mkdir, p("d"))
t(os.mkdir, p("d"))
t(os.mkdir, p("no", "d"))
t(os.mkdir, p("d", "sub"), 0o700)
fd = os.open(p("f"), os.O_CREAT | os.O_RDWR | os.O_EXCL, 0o666)
low = fd
t(os.open, p("f"), os.O_CREAT | os.O_EXCL)
t(os.write, fd, b"hello world")
t(os.pread, fd, 5, 6)
t(os.lseek, fd, 0, os.SEEK_SET)
t(os.read, fd, 100)
t(os.read, fd, 100)
t(os.lseek, fd, -20, os.SEEK_CUR)
t(os.lseek, fd, 3, os.SEEK_END)
t(os.fstat, fd)
t(os.stat, p("f"))
t(os.stat, p("f") + "/")
t(os.stat, p("f", "x"))
t(os.stat, p("missing"))
t(os.stat, p("d") + "//../d/./sub/")
t(os.writev, fd, [b"ab", b"cd"])
t(os.pwrite, fd, b"XY", 1)
t(os.preadv, fd, [bytearray(3), bytearray(3)], 0)
t(os.ftruncate, fd, 5)
t(os.truncate, p("f"), 20)
t(os.pread, fd, 100, 0)
t(os.posix_fallocate, fd, 0, 100)
t(os.posix_fadvise, fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
t(os.fsync, fd)
t(os.fdatasync, fd)
t(os.isatty, fd)
print(os.fstatvfs(fd).f_namemax, os.statvfs(base).f_bsize)
t(os.fpathconf, fd, "PC_NAME_MAX")
t(os.pathconf, p("d"), "PC_NAME_MAX")

# descriptors: lowest first, dup family, flags
a = os.open(p("f"), os.O_RDONLY)
b = os.open(p("f"), os.O_RDONLY)
print("numbers", a - low, b - low)
os.close(a)
c = os.open("/dev/null", os.O_RDONLY)
print("lowest again", c - low)
os.close(c)
c = os.open(p("f"), os.O_RDONLY)
print("lowest again", c - low)
t(os.close, 987)
e = os.dup(fd)
print("dup", e - low, os.get_inheritable(e))
t(os.lseek, e, 7, os.SEEK_SET)
t(os.lseek, fd, 0, os.SEEK_CUR)
g = os.dup2(fd, 50)
t(fcntl.fcntl, 50, fcntl.F_GETFD)
t(fcntl.fcntl, 50, fcntl.F_SETFD, 1)
t(fcntl.fcntl, 50, fcntl.F_GETFD)
t(fcntl.fcntl, fd, fcntl.F_GETFL)
t(fcntl.fcntl, fd, fcntl.F_SETFL, os.O_APPEND)
t(fcntl.fcntl, e, fcntl.F_GETFL)
t(os.write, fd, b"end")
t(os.lseek, e, 0, os.SEEK_CUR)
h = fcntl.fcntl(fd, fcntl.F_DUPFD, 60)
print("F_DUPFD", h)
os.dup2(os.open("/dev/null", os.O_RDONLY), 50)
t(os.read, 50, 1)
os.close(50)
t(os.read, 50, 1)
t(os.fstat, 50)
t(fcntl.fcntl, 50, fcntl.F_GETFD)
os.close(b), os.close(c), os.close(e)
t(fcntl.fcntl, b, fcntl.F_GETFD)
t(os.dup, b)
t(os.fstat, b)
r, w = os.pipe()
print("pipe", r - low, w - low)
os.write(w, b"z")
os.set_blocking(r, False)
print("poll", sorted((f - low, ev) for f, ev in (lambda q: (q.register(fd, 5), q.register(r, 1), q.poll(0))[-1])(select.poll())))
print("select", [x - low for x in select.select([fd, r], [], [], 0)[0]])
ep = select.epoll()
t(ep.register, fd, 1)
t(ep.register, r, 1)
ep.close(), os.close(r), os.close(w)

# names
t(os.symlink, "f", p("l"))
t(os.symlink, p("d"), p("dl"))
t(os.symlink, "loop", p("loop"))
t(os.readlink, p("l"))
t(os.readlink, p("dl"))
t(os.readlink, p("f"))
t(os.stat, p("loop"))
t(os.lstat, p("loop"))
t(os.stat, p("dl", "sub"))
t(os.lstat, p("l"))
t(os.link, p("f"), p("f2"))
t(os.stat, p("f2"))
t(os.rename, p("f2"), p("d", "f3"))
t(os.rename, p("d"), p("d", "sub", "x"))
t(os.rename, p("missing"), p("y"))
t(os.rename, p("f"), p("d"))
t(os.replace, p("d", "f3"), p("f3"))
t(os.rmdir, p("d"))
t(os.unlink, p("d"))
t(os.rmdir, p("f"))
t(os.unlink, p("missing"))
t(os.mkfifo, p("fifo"))
t(os.lstat, p("fifo"))
t(os.access, p("f"), os.R_OK)
t(os.access, p("nope"), os.R_OK)
t(os.listdir, p("f"))
print(sorted(os.listdir(base)))
print(sorted((x.name, x.is_dir(follow_symlinks=False), x.is_symlink()) for x in os.scandir(base)))
print([(d.replace(base, "BASE"), sorted(x), sorted(y)) for d, x, y in os.walk(base)][0])
t(os.open, p("n" * 256), os.O_CREAT)
t(os.stat, p("x" * 5000))
t(os.open, p("d"), os.O_WRONLY)
t(os.open, p("l"), os.O_NOFOLLOW)
t(os.open, p("f"), os.O_DIRECTORY)

# attributes
t(os.chmod, p("f"), 0o4755)
t(os.stat, p("f"))
t(os.utime, p("f"), (1000000000, 2000000000))
print(os.stat(p("f")).st_mtime, os.stat(p("f")).st_atime)
t(os.utime, p("f"), ns=(123456789, 987654321))
print(os.stat(p("f")).st_mtime_ns)
t(os.setxattr, p("f"), "user.a", b"value")
t(os.getxattr, p("f"), "user.a")
t(os.listxattr, p("f"))
t(os.getxattr, p("f"), "user.none")
t(os.removexattr, p("f"), "user.a")

# directories and the working directory
d = os.open(p("d"), os.O_RDONLY | os.O_DIRECTORY)
t(os.mkdir, "rel", dir_fd=d)
t(os.stat, "rel", dir_fd=d)
t(os.stat, "../f", dir_fd=d)
print(sorted(os.listdir(d)))
t(os.read, d, 10)
t(os.chdir, p("d"))
t(os.getcwd)
t(os.stat, "sub")
t(os.stat, "../f")
t(os.chdir, "sub")
t(os.getcwd)
t(os.chdir, "../..")
t(os.getcwd)
t(os.fchdir, d)
t(os.getcwd)
t(os.open, "made", os.O_CREAT | os.O_WRONLY)
t(os.rename, "made", "sub/made")
t(os.listdir, "sub")
print(os.stat("../../../../../../../../etc/passwd").st_size == os.stat("/etc/passwd").st_size)
t(os.chdir, "../../../../../../../../usr")
t(os.getcwd)
os.chdir("/")
t(os.rmdir, "rel", dir_fd=d)
os.close(d)

# mapping (the plain model has none)
if many:
    with open(p("m"), "wb+") as f:
        f.write(b"0123456789" * 1000)
        f.flush()
        m = mmap.mmap(f.fileno(), 0)
        m[0:3] = b"abc"
        m.flush()
        print(os.pread(f.fileno(), 10, 0))
        f.seek(5)
        f.write(b"!!")
        f.flush()
        print(m[0:10], len(m))
        q = mmap.mmap(f.fileno(), 4096, mmap.MAP_PRIVATE)
        q[0:1] = b"Z"
        print(q[0:4], os.pread(f.fileno(), 4, 0))
        q.close(), m.close()
else:
    open(p("m"), "wb").write(b"abc34!!789" + b"0123456789" * 999 + b"1")
print(open(p("m"), "rb").read(12), os.path.getsize(p("m")))

# copies
s, z = os.open(p("m"), os.O_RDONLY), os.open(p("copy"), os.O_CREAT | os.O_RDWR)
t(os.sendfile, z, s, 0, 100)
t(os.copy_file_range, s, z, 1000, 0, 100)
t(os.fstat, z)
outside = "/dev/shm/bypath-kernel-file-%d" % os.getpid()
k = os.open(outside, os.O_CREAT | os.O_RDWR | os.O_TRUNC)
t(os.sendfile, k, s, 0, 50)
t(os.sendfile, z, k, 0, 10)
t(os.fstat, k)
os.close(k), os.unlink(outside), os.close(s), os.close(z)

# locks
f1, f2 = os.open(p("f"), os.O_RDWR), os.open(p("f"), os.O_RDWR)
t(fcntl.flock, f1, fcntl.LOCK_EX | fcntl.LOCK_NB)
t(fcntl.flock, f2, fcntl.LOCK_EX | fcntl.LOCK_NB)
t(fcntl.flock, f1, fcntl.LOCK_UN)
t(fcntl.flock, f2, fcntl.LOCK_SH | fcntl.LOCK_NB)
t(fcntl.lockf, f1, fcntl.LOCK_EX | fcntl.LOCK_NB)
os.close(f1), os.close(f2)

# unlinked while open
u = os.open(p("gone"), os.O_CREAT | os.O_RDWR)
os.write(u, b"still here")
os.unlink(p("gone"))
t(os.stat, p("gone"))
t(os.pread, u, 20, 0)
t(os.fstat, u)
t(os.stat, "/dev/fd/%d" % u)
os.close(u)
v = os.open(p("m"), os.O_RDONLY)
os.lseek(v, 6, 0)
w = os.open("/proc/self/fd/%d" % v, os.O_RDONLY)
t(os.read, w, 4)
t(os.readlink, "/proc/self/fd/%d" % v)
os.close(v), os.close(w)

# a symlink of the kernel's that leads in
out = "/dev/shm/bypath-link-%d" % os.getpid()
os.symlink(base, out)
t(os.stat, out + "/f")
t(lambda: open(out + "/f", "rb").read(5))
t(lambda: sorted(os.listdir(out))[:3])
os.unlink(out)

# threads
def work(i):
    for j in range(200):
        name = p("d", "t%d-%d" % (i, j))
        f = os.open(name, os.O_CREAT | os.O_WRONLY)
        os.write(f, b"x" * j)
        os.close(f)
        if j % 2:
            os.unlink(name)


threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
[x.start() for x in threads]
[x.join() for x in threads]
print("threads", len(os.listdir(p("d"))), sum(os.path.getsize(p("d", x)) for x in os.listdir(p("d")) if x[0] == "t"))

if many:
    import subprocess
    # fork: the offset is shared
    f = os.open(p("shared"), os.O_CREAT | os.O_RDWR | os.O_TRUNC)
    os.write(f, b"0123456789")
    os.lseek(f, 2, 0)
    child = os.fork()
    if child == 0:
        os.read(f, 3)
        os.write(f, b"C")
        os._exit(7)
    print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), os.lseek(f, 0, 1), os.pread(f, 20, 0))
    # exec: descriptors and working directory are inherited
    os.set_inheritable(f, True)
    os.lseek(f, 4, 0)
    os.chdir(p("d"))
    print(subprocess.run(["sh", "-c", "pwd; dd bs=1 count=3 <&%d 2>/dev/null; ls | wc -l; cat ../f | head -c 3" % f],
                         close_fds=False, capture_output=True).stdout.replace(base.encode(), b"BASE"))
    print("after", os.lseek(f, 0, 1))
    with open(p("out"), "w") as o:
        subprocess.run(["echo", "to a file"], stdout=o)
        subprocess.run("echo more; ls -d sub", shell=True, stdout=o)
    print(open(p("out")).read())
    print(os.system("echo system > %s; test -f %s" % (p("sys"), p("sys"))), open(p("sys")).read())
    print(os.popen("cat " + p("sys")).read())
    print(subprocess.run(["cat"], stdin=open(p("sys")), capture_output=True).stdout)
    # scripts and programs inside
    with open(p("script"), "w") as o:
        o.write("#!/bin/sh\necho script \"$@\"; cat < %s\n" % p("sys"))
    try:
        subprocess.run([p("script")])
    except PermissionError as e:
        print("EACCES")
    os.chmod(p("script"), 0o755)
    print(subprocess.run([p("script"), "a", "b"], capture_output=True).stdout)
    open(p("prog"), "wb").write(open("/bin/true", "rb").read())
    os.chmod(p("prog"), 0o755)
    print(subprocess.run([p("prog")]).returncode)
    env = dict(os.environ, PATH=base + ":" + os.environ["PATH"])
    print(subprocess.run(["script", "by path"], capture_output=True, env=env).stdout)
    print(subprocess.run(["env", "-i", "/bin/cat", p("sys")], capture_output=True).stdout)
    os.chdir("/")
print("done")
