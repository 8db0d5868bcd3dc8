"""Goal: what the module has and os has not: maps, buffers used again, forked and spawned processes, sessions, mounts.

Method: several processes on one image; the image is checked after each test.
"""

import ctypes
import errno
import fcntl
import gc
import io
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import unittest

import common

import bypath


def in_child(work):
    """What `work` gives in a forked child, as text."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            text = str(work())
        except BaseException as error:  # The parent must see whatever it is.
            text = f"{type(error).__name__} {getattr(error, 'errno', None)}"
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    return text


def _checksum(job):
    fs, names = job
    return sum(sum(fs.read_bytes(name)) for name in names)


def _spawned(path, name, queue):
    with bypath.image(path) as fs:
        fs.write_bytes(name, name.encode())
        queue.put(fs.read_bytes("/before"))


class OnImage(unittest.TestCase):
    """A fresh image for each test."""

    def setUp(self):
        scratch = common.scratch()
        self.directory = scratch.__enter__()
        self.addCleanup(scratch.__exit__, None, None, None)
        self.image = common.image(self.directory)
        self.fs = bypath.image(self.image)

    def tearDown(self):
        self.fs.close()
        gc.collect()
        common.check(self.image)


class Memory(OnImage):
    """Bytes without copies."""

    def test_map_is_the_files_own_memory(self):
        data = bytes(range(256)) * 40
        self.fs.write_bytes("/f", data)
        view = self.fs.map("/f")
        self.assertTrue(view.readonly)
        self.assertEqual((view.nbytes, view.format, bytes(view)), (len(data), "B", data))
        with self.assertRaises(TypeError):
            view[0] = 1
        part = self.fs.map("/f", length=10, offset=5000)
        self.assertEqual(bytes(part), data[5000:5010])
        # Others' writes show in both.
        with self.fs.open("/f", "r+b", 0) as file:
            file.pwrite(b"new", 5001)
        self.assertEqual((bytes(view[5000:5005]), bytes(part[:5])), (data[5000:5001] + b"new" + data[5004:5005],) * 2)
        kept = part[1:4]
        del view, part
        self.assertEqual(bytes(kept), b"new")

    def test_map_ends_with_the_file(self):
        self.fs.write_bytes("/f", b"x" * 5000)
        self.assertEqual(self.fs.map("/f", length=10000, offset=4990).nbytes, 10)
        self.assertEqual(self.fs.map("/f", offset=5000).nbytes, 0)
        self.assertEqual(self.fs.map("/f", offset=9000).nbytes, 0)
        self.fs.write_bytes("/empty", b"")
        self.assertEqual(bytes(self.fs.map("/empty")), b"")
        for wrong in ({"offset": -1}, {"length": -1}):
            with self.assertRaises(ValueError):
                self.fs.map("/f", **wrong)
        with self.assertRaises(OSError) as caught:
            self.fs.map("/")
        self.assertIn(caught.exception.errno, (errno.ENODEV, errno.EISDIR))

    def test_writable_map_writes(self):
        self.fs.write_bytes("/f", bytes(9000))
        view = self.fs.map("/f", offset=8000, writable=True)
        self.assertFalse(view.readonly)
        view[10:13] = b"abc"
        self.assertEqual(self.fs.read_bytes("/f")[8009:8014], b"\0abc\0")
        del view
        self.fs.chmod("/f", 0o444)
        with self.fs.open("/f", "rb", 0) as file, self.assertRaises(PermissionError):
            file.map(writable=True)

    def test_writable_map_changes_the_times(self):
        self.fs.write_bytes("/f", bytes(9000))
        for writable in False, True:
            self.fs.utime("/f", (1e9, 1e9))
            view = self.fs.map("/f", length=100, writable=writable)
            if writable:
                view[10:13] = b"abc"
            del view
            gc.collect()
            self.assertEqual(self.fs.stat("/f").st_mtime != 1e9, writable)

    def test_map_outlives_file_and_namespace(self):
        self.fs.write_bytes("/f", b"text")
        view = self.fs.map("/f")
        self.fs.remove("/f")
        self.assertEqual(bytes(view), b"text")
        self.fs.close()
        self.assertEqual(bytes(view), b"text")
        with self.assertRaises(ValueError):
            self.fs.stat("/f")

    def test_map_of_holes(self):
        with self.fs.open("/f", "wb", 0) as file:
            file.pwrite(b"end", 1 << 20)
            file.truncate((1 << 20) + 100)
        view = self.fs.map("/f")
        self.assertEqual((sum(view[: 1 << 20]), bytes(view[1 << 20 : (1 << 20) + 4])), (0, b"end\0"))
        # Filled by another process meanwhile.
        in_child(lambda: self.fs.open("/f", "r+b", 0).pwrite(b"filled", 300000))
        self.assertEqual((bytes(view[300000:300006]), view[5]), (b"filled", 0))

    def test_map_in_forked_child(self):
        self.fs.write_bytes("/f", b"text")
        with self.fs.open("/f", "rb", 0) as file:
            views = [self.fs.map("/f"), file.map()]
        self.assertEqual(in_child(lambda: [bytes(views.pop()) for _ in range(2)]), "[b'text', b'text']")
        self.assertEqual([bytes(view) for view in views], [b"text", b"text"])

    def test_what_is_cut_off_is_zeroes(self):
        self.fs.write_bytes("/f", b"x" * 100000)
        view = self.fs.map("/f")
        self.fs.truncate("/f", 50000)
        self.fs.write_bytes("/g", b"y" * 500000)
        self.assertEqual((view[49999], sum(view[50000:])), (ord("x"), 0))

    def test_many_maps(self):
        self.fs.write_bytes("/f", b"0123456789")
        views = [self.fs.map("/f") for _ in range(500)]
        self.assertEqual({bytes(view) for view in views}, {b"0123456789"})
        del views
        # All are given back: no table of 4,095 runs full.
        for _ in range(5000):
            self.fs.map("/f")
        # Holes: mapped page by page.
        self.fs.truncate("/f", 1 << 16)
        for _ in range(5000):
            self.assertEqual(self.fs.map("/f").nbytes, 1 << 16)
        lines = sum("image" in line for line in open("/proc/self/maps"))
        self.assertLess(lines, 100)

    def test_read_many(self):
        """Each is what it is alone: small ones, an empty one, some that fill the room of a call, one that is larger."""
        contents = {f"/{at}": bytes([at]) * size for at, size in enumerate([3, 0, 200_000, 60_000, 262_144, 262_143, 262_145, 700_000, 1])}
        for name, data in contents.items():
            self.fs.write_bytes(name, data)
        names = [*contents, *reversed(contents)]
        self.assertEqual(self.fs.read_many(iter(names)), [contents[name] for name in names])
        self.assertEqual(self.fs.read_many([]), [])
        with self.assertRaises(FileNotFoundError) as raised:
            self.fs.read_many(["/0", "/none", "/2"])
        self.assertEqual(raised.exception.filename, "/none")

    def test_read_into_reuses_a_buffer(self):
        self.fs.write_bytes("/a", b"first text")
        self.fs.write_bytes("/b", b"other")
        buffer = bytearray(100)
        self.assertEqual((self.fs.read_into("/a", buffer), bytes(buffer[:10])), (10, b"first text"))
        self.assertEqual((self.fs.read_into("/b", buffer), bytes(buffer[:10])), (5, b"other text"))
        self.assertEqual((self.fs.read_into("/a", memoryview(buffer)[50:54], offset=6), bytes(buffer[50:55])), (4, b"text\0"))
        with self.assertRaises((TypeError, BufferError)):
            self.fs.read_into("/a", b"constant")
        with self.assertRaises(FileNotFoundError):
            self.fs.read_into("/none", buffer)

    def test_large_files(self):
        data = os.urandom(1 << 20) * 5
        self.assertEqual(self.fs.write_bytes("/f", data), len(data))
        self.assertEqual(self.fs.read_bytes("/f"), data)
        for length in (0, 1, 2, 256 * 1024 - 1, 256 * 1024, 256 * 1024 + 1):
            self.fs.write_bytes("/g", data[:length])
            self.assertEqual(self.fs.read_bytes("/g"), data[:length])
            with self.fs.open("/g", "rb", 0) as file:
                self.assertEqual(file.readall(), data[:length])

    def test_files_of_unknown_length(self):
        with bypath.Namespace().mount("host:/proc/self") as fs:
            for read in (fs.read_bytes, lambda path: fs.open(path, "rb").read(), lambda path: fs.open(path, "rb", 0).readall()):
                self.assertIn(b"VmPeak", read("status"))


class Processes(OnImage):
    """Children, threads, loaders."""

    def test_forked_child_attaches_again(self):
        self.fs.write_bytes("/f", b"text")
        self.fs.mkdir("/d")
        self.fs.chdir("/d")
        self.fs.umask(0o077)
        file = self.fs.open("/f", "rb", 0)
        self.assertEqual(in_child(lambda: self.fs.read_bytes("../f")), "b'text'")
        self.assertEqual(in_child(lambda: self.fs.write_bytes("made", b"by the child")), "12")
        self.assertEqual((self.fs.read_bytes("/d/made"), self.fs.stat("/d/made").st_mode & 0o777), (b"by the child", 0o600))
        # What was open is the parent's.
        self.assertEqual(in_child(lambda: file.read()), f"OSError {errno.EBADF}")
        self.assertEqual(in_child(lambda: file.close()), "None")
        self.assertEqual(file.read(), b"text")
        # Of a child of the child, too.
        self.assertEqual(in_child(lambda: (self.fs.listdir("/"), in_child(lambda: self.fs.read_bytes("/f")))[1]), "b'text'")
        file.close()

    def test_memory_is_not_inherited(self):
        with bypath.Namespace().mount("mem:") as fs:
            fs.write_bytes("/f", b"text")
            self.assertEqual(fs.read_bytes("/f"), b"text")
            self.assertEqual(in_child(lambda: fs.read_bytes("/f")), f"OSError {errno.EBADF}")

    def test_closed_stays_closed(self):
        self.fs.close()
        self.assertEqual(in_child(lambda: self.fs.listdir("/")), "ValueError None")

    def test_loaders(self):
        names = [f"/{number % 7}/{number}" for number in range(700)]
        for number in range(7):
            self.fs.mkdir(f"/{number}")
        for name in names:
            self.fs.write_bytes(name, name.encode() * 50)
        wanted = _checksum((self.fs, names))
        for method in ("fork", "spawn", "forkserver"):
            with multiprocessing.get_context(method).Pool(3) as pool:
                jobs = [(self.fs, names[begin::10]) for begin in range(10)]
                self.assertEqual(sum(pool.map(_checksum, jobs)), wanted, method)

    def test_spawned_processes_see_each_other(self):
        self.fs.write_bytes("/before", b"seen")
        context = multiprocessing.get_context("spawn")
        queue = context.Queue()
        children = [context.Process(target=_spawned, args=(self.image, f"/{number}", queue)) for number in range(2)]
        for child in children:
            child.start()
        self.assertEqual([queue.get(timeout=60) for _ in children], [b"seen"] * 2)
        for child in children:
            child.join(60)
            self.assertEqual(child.exitcode, 0)
        self.assertEqual([self.fs.read_bytes(name) for name in ("/0", "/1")], [b"/0", b"/1"])

    def test_threads(self):
        errors = []

        def work(number):
            try:
                self.fs.mkdir(f"/{number}")
                for step in range(200):
                    name = f"/{number}/{step}"
                    self.fs.write_bytes(name, name.encode())
                    assert self.fs.read_bytes(name) == name.encode()
                    assert self.fs.stat(name).st_size == len(name)
                assert len(self.fs.listdir(f"/{number}")) == 200
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])

    def test_others_run_while_one_waits(self):
        first, second = (self.fs.open("/f", "a+b", 0) for _ in range(2))
        first.flock(fcntl.LOCK_EX)
        with self.assertRaises(BlockingIOError):
            second.flock(fcntl.LOCK_EX | fcntl.LOCK_NB)
        got = []
        waiter = threading.Thread(target=lambda: (second.flock(fcntl.LOCK_EX), got.append(time.monotonic())))
        waiter.start()
        time.sleep(0.2)
        self.assertEqual(got, [])
        released = time.monotonic()
        first.flock(fcntl.LOCK_UN)
        waiter.join(30)
        self.assertGreaterEqual(got[0], released)

    def test_waiting_can_be_interrupted(self):
        first, second = (self.fs.open("/f", "a+b", 0) for _ in range(2))
        first.flock(fcntl.LOCK_EX)

        class Rung(Exception):
            pass

        def ring(*_):
            raise Rung

        before = signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            with self.assertRaises(Rung):
                second.flock(fcntl.LOCK_EX)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


class Namespaces(OnImage):
    """Mounts, errors, ends."""

    def test_unknown_options(self):
        # A misspelt "ro" must not give a mount that can be written. A daemon's options are checked by another program.
        for source, options in ((self.image, "roo"), (self.image, "ro,bogus"), ("host:/tmp", "rO"), ("fuse:true @", "tiemout=5")):
            with bypath.Namespace() as fs, self.assertRaises(OSError) as caught:
                fs.mount(source, "/", options)
            self.assertEqual(caught.exception.errno, errno.EINVAL, (source, options))

    def test_several_mounts(self):
        os.mkdir(os.path.join(self.directory, "host"))
        with open(os.path.join(self.directory, "host", "h"), "w") as file:
            file.write("of the kernel's")
        with bypath.Namespace() as fs:
            fs.mount(self.image, "/image").mount("host:" + os.path.join(self.directory, "host"), "/host", "ro").mount("mem:", "/mem")
            fs.write_bytes("/image/i", fs.read_bytes("/host/h"))
            self.assertEqual(self.fs.read_text("/i"), "of the kernel's")
            with self.assertRaises(OSError) as caught:
                fs.rename("/image/i", "/mem/i")
            self.assertEqual((caught.exception.errno, caught.exception.filename2), (errno.EXDEV, "/mem/i"))
            with self.assertRaises(OSError) as caught:
                fs.write_bytes("/host/new", b"")
            self.assertEqual(caught.exception.errno, errno.EROFS)
            file = fs.open("/mem/f", "wb")
            with self.assertRaises(OSError) as caught:
                fs.umount("/mem")
            self.assertEqual(caught.exception.errno, errno.EBUSY)
            file.close()
            fs.umount("/mem")
            self.assertFalse(fs.exists("/mem/f"))

    def test_read_only(self):
        self.fs.write_bytes("/f", b"text")
        with bypath.image(self.image, read_only=True) as fs:
            self.assertEqual(fs.read_bytes("/f"), b"text")
            for call in (lambda: fs.remove("/f"), lambda: fs.open("/f", "w"), lambda: fs.mkdir("/d")):
                with self.assertRaises(OSError) as caught:
                    call()
                self.assertEqual(caught.exception.errno, errno.EROFS)

    def test_what_is_no_image(self):
        for path, number in ((os.path.join(self.directory, "none"), errno.ENOENT), (__file__, errno.EINVAL)):
            with self.assertRaises(OSError) as caught:
                bypath.image(path)
            self.assertEqual((caught.exception.errno, caught.exception.filename), (number, path))

    def test_files_are_not_the_kernels(self):
        with self.fs.open("/f", "w+b") as file:
            with self.assertRaises(io.UnsupportedOperation):
                file.fileno()
            with self.assertRaises((TypeError, io.UnsupportedOperation)):
                pickle.dumps(file.raw)
            self.assertEqual((file.raw.name, file.raw.mode, file.isatty()), ("/f", "rb+", False))
        with self.assertRaises(ValueError):
            file.raw.tell()

    def test_open_files_end_with_the_namespace(self):
        file = self.fs.open("/f", "wb", 0)
        self.fs.close()
        with self.assertRaises(OSError) as caught:
            file.write(b"x")
        self.assertEqual(caught.exception.errno, errno.EBADF)
        file.close()

    def test_nothing_is_left_open(self):
        self.fs.mkdir("/d")
        for _ in range(3000):
            self.fs.open("/f", "a+b", 0)
            self.fs.scandir("/d")
        gc.collect()
        with self.fs.open("/f", "rb", 0) as file:
            self.assertLess(file._fd, 50)

    def test_end_without_close(self):
        # What was not closed is written and given back when the interpreter ends.
        code = f"import bypath; fs = bypath.image({self.image!r}); f = fs.open('/end', 'w'); f.write('text'); v = fs.map('/before')"
        self.fs.write_bytes("/before", b"x")
        paths = os.pathsep.join(sys.path)
        done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": paths}, stderr=subprocess.PIPE)
        self.assertEqual((done.returncode, done.stderr, self.fs.read_bytes("/end")), (0, b"", b"text"))

    def test_session(self):
        with self.assertRaises(FileNotFoundError):
            bypath.session()
        self.fs.write_bytes("/f", b"text")
        code = "import bypath; fs = bypath.session(); print(fs.read_text('/bp/f')); fs.write_bytes('/bp/g', open('/bp/f', 'rb').read())"
        command = [common.BYPATH, "run", "--no-fuse", "-m", f"{self.image}:/bp", "--", sys.executable, "-c", code]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        self.assertEqual(subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True).stdout, b"text\n")
        self.assertEqual(self.fs.read_bytes("/g"), b"text")

    def test_records_are_the_machines(self):
        # Fields of struct stat by the kernel's own file, whose every number is known.
        os.mkdir(os.path.join(self.directory, "host"))
        path = os.path.join(self.directory, "host", "f")
        with open(path, "wb") as file:
            file.write(b"12345")
        os.utime(path, ns=(1234567890123456789, 987654321987654321))
        os.link(path, path + "2")
        with bypath.Namespace().mount("host:" + os.path.dirname(path)) as fs:
            got, wanted = fs.stat("/f"), os.stat(path)
            for field in ("mode", "ino", "nlink", "uid", "gid", "size", "atime", "mtime", "ctime", "atime_ns", "mtime_ns", "ctime_ns", "blksize", "blocks"):
                self.assertEqual(getattr(got, "st_" + field), getattr(wanted, "st_" + field), field)
        self.assertEqual(ctypes.sizeof(ctypes.c_long), 8)
