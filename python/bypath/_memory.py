"""What calls write into: buffers that are used again, addresses of Python's own, records of C."""

import ctypes
import os
import platform
import struct
import sys

# Room for a part of a file or of a directory.
PART = 256 * 1024

_is_arm = platform.machine() == "aarch64"
# struct stat: what is read of it in the order of FIELDS.
_STAT = struct.Struct("=QQIIIIQ8xqi4xqqqqqqq" if _is_arm else "=QQQIII4xQqqqqqqqqq")
STAT_SIZE = 128 if _is_arm else 144
_STATVFS = struct.Struct("=11Q")
STATVFS_SIZE = 112
_TIMES = struct.Struct("=4q")


class Pool:
    """Buffers of one size. Taken from a list and put back, which is safe among threads and in signal handlers."""

    def __init__(self, size):
        self.size = size
        self._free = []

    def take(self):
        """One that nobody uses."""
        try:
            return self._free.pop()
        except IndexError:
            return ctypes.create_string_buffer(self.size)

    def put(self, buffer):
        """It may be used again."""
        self._free.append(buffer)


stats = Pool(STAT_SIZE)
parts = Pool(PART)


def stat_result(buffer):
    """os.stat_result of a struct stat."""
    if _is_arm:
        dev, ino, mode, links, uid, gid, rdev, size, unit, blocks, a, an, m, mn, c, cn = _STAT.unpack_from(buffer)
    else:
        dev, ino, links, mode, uid, gid, rdev, size, unit, blocks, a, an, m, mn, c, cn = _STAT.unpack_from(buffer)
    return os.stat_result(
        (mode, ino, dev, links, uid, gid, size, a, m, c, a + 1e-9 * an, m + 1e-9 * mn, c + 1e-9 * cn)
        + (a * 1000000000 + an, m * 1000000000 + mn, c * 1000000000 + cn, unit, blocks, rdev)
    )


def statvfs_result(buffer):
    """os.statvfs_result of a struct statvfs."""
    unit, fragment, blocks, free, available, files, files_free, files_available, fsid, flag, longest = _STATVFS.unpack_from(buffer)
    return os.statvfs_result((unit, fragment, blocks, free, available, files, files_free, files_available, flag, longest, fsid))


def timespecs(access_ns, modified_ns):
    """Two struct timespec."""
    return _TIMES.pack(*divmod(access_ns, 1000000000), *divmod(modified_ns, 1000000000))


def entries(buffer, length):
    """(name, inode number, type) of each record that getdents64 has written."""
    data = buffer[:length]
    at = 0
    while at < length:
        size = int.from_bytes(data[at + 16 : at + 18], sys.byteorder)
        name = data[at + 19 : data.index(b"\0", at + 19)]
        if name != b"." and name != b"..":
            yield name, int.from_bytes(data[at : at + 8], sys.byteorder), data[at + 18]
        at += size


class _View(ctypes.Structure):
    """Py_buffer."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


_get = ctypes.pythonapi.PyObject_GetBuffer
_get.argtypes = [ctypes.py_object, ctypes.POINTER(_View), ctypes.c_int]
_get.restype = ctypes.c_int
_release = ctypes.pythonapi.PyBuffer_Release
_release.argtypes = [ctypes.POINTER(_View)]
_release.restype = None
_WRITABLE = 1


_bytes = ctypes.pythonapi.PyBytes_FromStringAndSize
_bytes.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t]
_bytes.restype = ctypes.py_object


def fresh_bytes(length):
    """A bytes object of two bytes or more, which nobody else has yet: its memory may be written, once."""
    # Shorter ones are shared by all.
    assert length > 1
    return _bytes(None, length)


class Bytes:
    """The memory of an object that has the buffer interface, for the length of a `with`: (address, length)."""

    def __init__(self, owner, writable=False):
        self._view = _View()
        # Raises TypeError or BufferError itself.
        _get(owner, ctypes.byref(self._view), _WRITABLE if writable else 0)

    def __enter__(self):
        return self._view.buf, self._view.len

    def __exit__(self, *_):
        _release(ctypes.byref(self._view))
