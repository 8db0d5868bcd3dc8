"""Open files: `File` is raw, and io's buffers and text layers go on top of it."""

import ctypes
import errno
import fcntl
import io
import os
import stat as modes

from ._library import lib
from ._maps import map_open
from ._memory import PART, Bytes, fresh_bytes, parts, stat_result, stats

BUFFER = 32 * 1024


class File(io.RawIOBase):
    """An open file without a buffer of its own, as io.FileIO is one of the kernel's.

    It has no `fileno()`: the kernel does not know it. A forked child can't use what its parent had open.
    """

    def __init__(self, fs, path, flags, mode=0o666):
        self._fd = -1
        self.name = path
        self._flags = flags
        self._fd = lib.bp_open(fs._value, fs._name(path), flags | os.O_CLOEXEC, mode)
        self._handle = fs._handle
        if self._fd < 0:
            fs._fail(path)

    @property
    def mode(self):
        """As io.FileIO tells it."""
        kind = self._flags & os.O_ACCMODE
        if self._flags & os.O_APPEND:
            return "ab+" if kind == os.O_RDWR else "ab"
        if self._flags & os.O_EXCL:
            return "xb+" if kind == os.O_RDWR else "xb"
        return {os.O_RDONLY: "rb", os.O_WRONLY: "wb"}.get(kind, "rb+")

    def __repr__(self):
        return f"<bypath.File name={self.name!r} mode={self.mode!r}{' closed' if self.closed else ''}>"

    def __getstate__(self):
        raise TypeError("cannot pickle an open file")

    def _fail(self):
        number = ctypes.get_errno()
        if self._fd < 0:
            raise ValueError("I/O operation on closed file")
        if self._handle.value is None:
            raise OSError(errno.EBADF, "The file's namespace was closed, or is the parent process's")
        raise OSError(number, os.strerror(number))

    def _call(self, call, *args):
        """A call on this file; one that a signal has interrupted is made again."""
        while True:
            result = call(self._handle.value, self._fd, *args)
            if result >= 0:
                return result
            if ctypes.get_errno() != errno.EINTR:
                self._fail()

    def close(self):
        """Closes it; what the close itself reports is raised."""
        if self.closed:
            return
        try:
            super().close()
        finally:
            fd, self._fd = self._fd, -1
            if fd >= 0 and self._handle.value is not None and lib.bp_close(self._handle.value, fd) < 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))

    def fileno(self):
        """There is none."""
        raise io.UnsupportedOperation("a file of Bypath has no descriptor that the kernel knows")

    def isatty(self):
        """Never."""
        if self.closed:
            raise ValueError("I/O operation on closed file")
        return False

    def readable(self):
        """Whether it is open for reading."""
        if self.closed:
            raise ValueError("I/O operation on closed file")
        return self._flags & os.O_ACCMODE != os.O_WRONLY

    def writable(self):
        """Whether it is open for writing."""
        if self.closed:
            raise ValueError("I/O operation on closed file")
        return self._flags & os.O_ACCMODE != os.O_RDONLY

    def seekable(self):
        """Whether it has a position."""
        if self.closed:
            raise ValueError("I/O operation on closed file")
        return lib.bp_lseek(self._handle.value, self._fd, 0, os.SEEK_CUR) >= 0

    def _may(self, what):
        if not (self.readable() if what == "read" else self.writable()):
            raise io.UnsupportedOperation(f"File not open for {'reading' if what == 'read' else 'writing'}")

    def readinto(self, buffer):
        """Reads into a buffer: how many bytes."""
        self._may("read")
        with Bytes(buffer, writable=True) as (address, length):
            return self._call(lib.bp_read, address, length)

    def readall(self):
        """All from here to the end."""
        self._may("read")
        size = max(self.stat().st_size - self.tell(), 0) if self.seekable() else 0
        found = []
        if size > 1:
            # Read where it stays: pages of large files are dear to touch twice.
            data, at = fresh_bytes(size), 0
            with Bytes(data) as (address, _):
                while at < size:
                    got = self._call(lib.bp_read, address + at, size - at)
                    if got == 0:
                        return data[:at]
                    at += got
            found.append(data)
        # It may have grown, or have no size.
        buffer = parts.take()
        while True:
            got = self._call(lib.bp_read, buffer, PART)
            if got == 0:
                parts.put(buffer)
                return found[0] if len(found) == 1 else b"".join(found)
            found.append(buffer[:got])

    def write(self, data):
        """Writes: how many bytes."""
        self._may("write")
        with Bytes(data) as (address, length):
            return self._call(lib.bp_write, address, length)

    def seek(self, offset, whence=os.SEEK_SET):
        """Moves the position, as os.lseek."""
        return self._call(lib.bp_lseek, offset, whence)

    def tell(self):
        """The position."""
        return self._call(lib.bp_lseek, 0, os.SEEK_CUR)

    def truncate(self, size=None):
        """Sets the length, by default to the position."""
        self._may("write")
        if size is None:
            size = self.tell()
        self._call(lib.bp_ftruncate, size)
        return size

    def pread(self, length, offset):
        """Bytes at an offset, as os.pread."""
        data = bytearray(length)
        return bytes(memoryview(data)[: self.preadinto(data, offset)])

    def preadinto(self, buffer, offset):
        """Reads at an offset into a buffer: how many bytes."""
        self._may("read")
        with Bytes(buffer, writable=True) as (address, length):
            return self._call(lib.bp_pread, address, length, offset)

    def pwrite(self, data, offset):
        """Writes at an offset, as os.pwrite."""
        self._may("write")
        with Bytes(data) as (address, length):
            return self._call(lib.bp_pwrite, address, length, offset)

    def stat(self):
        """As os.fstat."""
        buffer = stats.take()
        self._call(lib.bp_fstat, buffer)
        result = stat_result(buffer)
        stats.put(buffer)
        return result

    def sync(self, data_only=False):
        """As os.fsync, or os.fdatasync."""
        self._call(lib.bp_fdatasync if data_only else lib.bp_fsync)

    def allocate(self, offset, length):
        """As os.posix_fallocate."""
        self._call(lib.bp_fallocate, 0, offset, length)

    def copy_to(self, other):
        """Copies all from here to the end into another file of the namespace, from its position on."""
        while True:
            done = lib.bp_copy_file_range(self._handle.value, self._fd, None, other._fd, None, 1 << 30, 0)
            if done < 0:
                break
            if done == 0:
                return
        if ctypes.get_errno() not in (errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):
            self._fail()
        # Between two file systems, or in one that can't.
        buffer = memoryview(bytearray(1 << 20))
        while True:
            got = self.readinto(buffer)
            if got == 0:
                return
            part = buffer[:got]
            while part:
                part = part[other.write(part) :]

    def flock(self, operation=fcntl.LOCK_EX):
        """As fcntl.flock."""
        self._call(lib.bp_flock, operation)

    def map(self, length=None, offset=0, writable=False):
        """The file's own memory, without copying: a memoryview of what there is now from `offset` on.

        It is the image's pages where the file lies in an image: others' writes show, and with `writable` stores into it are
        writes. A part that another process cuts off while it is mapped must not be touched any more. It stays until the last
        view of it is gone; the file may be closed before.
        """
        size = max(self.stat().st_size - offset, 0)
        length = size if length is None else min(length, size)
        if offset < 0 or length < 0:
            raise ValueError("offset and length must not be negative")
        view = map_open(self._handle, self._fd, length, offset, writable)
        return self._fail() if view is None else view


def open_file(fs, path, mode="r", buffering=-1, encoding=None, errors=None, newline=None):
    """As the built-in open(), on a file of `fs`."""
    kinds = set(mode)
    if len(mode) != len(kinds) or kinds - set("rwaxbt+") or len(kinds & set("rwax")) != 1:
        raise ValueError(f"invalid mode: {mode!r}")
    text = "b" not in kinds
    if text and buffering == 0:
        raise ValueError("can't have unbuffered text I/O")
    if not text and "t" in kinds:
        raise ValueError("can't have text and binary mode at once")
    for name, value in (("encoding", encoding), ("errors", errors), ("newline", newline)):
        if not text and value is not None:
            raise ValueError(f"binary mode doesn't take an {name} argument")
    raw = File(fs, path, _flags(kinds))
    try:
        if modes.S_ISDIR(raw.stat().st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if "a" in kinds and raw.seekable():
            raw.seek(0, os.SEEK_END)
        if buffering == 0:
            return raw
        size = buffering if buffering > 1 else BUFFER
        if "+" in kinds:
            buffer = io.BufferedRandom(raw, size)
        elif "r" in kinds:
            buffer = io.BufferedReader(raw, size)
        else:
            buffer = io.BufferedWriter(raw, size)
        if not text:
            return buffer
        wrapped = io.TextIOWrapper(buffer, encoding, errors, newline, buffering == 1)
        wrapped.mode = mode
        return wrapped
    except BaseException:
        raw.close()
        raise


def _flags(kinds):
    if "+" in kinds:
        flags = os.O_RDWR
    else:
        flags = os.O_RDONLY if "r" in kinds else os.O_WRONLY
    made = {"r": 0, "w": os.O_CREAT | os.O_TRUNC, "a": os.O_CREAT | os.O_APPEND, "x": os.O_CREAT | os.O_EXCL}
    return flags | made[next(iter(kinds & set("rwax")))]
