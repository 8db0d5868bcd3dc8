"""Directories: entries as os.scandir gives them, and walks."""

import ctypes
import errno
import os
import stat as modes

from ._library import lib
from ._memory import PART, entries, parts

_DIRECTORY, _REGULAR, _SYMLINK = 4, 8, 10


class DirEntry:
    """As os.DirEntry. What the directory itself tells costs no call."""

    __slots__ = ("name", "path", "_fs", "_inode", "_type", "_own", "_target")

    def __init__(self, fs, name, path, inode, kind):
        self._fs = fs
        self.name = name
        self.path = path
        self._inode = inode
        self._type = kind
        self._own = self._target = None

    def __fspath__(self):
        return self.path

    def __repr__(self):
        return f"<bypath.DirEntry {self.name!r}>"

    def inode(self):
        """Its inode number."""
        return self._inode

    def stat(self, *, follow_symlinks=True):
        """As os.DirEntry.stat: asked once, then remembered."""
        if follow_symlinks and self.is_symlink():
            if self._target is None:
                self._target = self._fs.stat(self.path)
            return self._target
        if self._own is None:
            self._own = self._fs.lstat(self.path)
        return self._own

    def _is(self, kind, test, follow_symlinks):
        if not (self._type == 0 or follow_symlinks and self._type == _SYMLINK):
            return self._type == kind
        try:
            return test((self.stat() if follow_symlinks else self._fs.lstat(self.path)).st_mode)
        except FileNotFoundError:
            return False

    def is_dir(self, *, follow_symlinks=True):
        """Whether it is a directory, or a symlink to one."""
        return self._is(_DIRECTORY, modes.S_ISDIR, follow_symlinks)

    def is_file(self, *, follow_symlinks=True):
        """Whether it is a regular file, or a symlink to one."""
        return self._is(_REGULAR, modes.S_ISREG, follow_symlinks)

    def is_symlink(self):
        """Whether it is a symlink."""
        return self._type == _SYMLINK or self._type == 0 and modes.S_ISLNK(self._fs.lstat(self.path).st_mode)


class Scan:
    """The entries of a directory: an iterator, to be closed, or used with `with`."""

    def __init__(self, fs, path):
        self._fs = fs
        self._path = os.fspath(path)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        self._fd = lib.bp_open(fs._value, fs._name(path), flags, 0)
        self._handle = fs._handle
        if self._fd < 0:
            fs._fail(path)
        self._found = iter(())

    def __iter__(self):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        self.close()

    def close(self, _close=lib.bp_close):
        """Closes the directory; nothing more comes of it."""
        fd, self._fd = getattr(self, "_fd", -1), -1
        if fd >= 0 and self._handle.value is not None:
            _close(self._handle.value, fd)

    def _part(self):
        """(name in bytes, inode number, type) of the next entries; none at the end."""
        if self._fd < 0:
            return []
        buffer = parts.take()
        got = lib.bp_getdents64(self._handle.value, self._fd, buffer, PART)
        number = ctypes.get_errno()
        found = list(entries(buffer, got)) if got > 0 else []
        parts.put(buffer)
        if got <= 0:
            self.close()
        # A directory that was removed has no entries.
        if got < 0 and number != errno.ENOENT:
            raise OSError(number, os.strerror(number), self._path)
        # "." and ".." alone are not the end.
        return found or (self._part() if got > 0 else [])

    def names(self):
        """The names of all that is left."""
        found = []
        while True:
            part = self._part()
            if not part:
                return found
            found += [name for name, _, _ in part] if isinstance(self._path, bytes) else [os.fsdecode(name) for name, _, _ in part]

    def __next__(self):
        record = next(self._found, None)
        if record is None:
            self._found = iter(self._part())
            record = next(self._found)
        name, inode, kind = record
        if isinstance(self._path, str):
            name = os.fsdecode(name)
        return DirEntry(self._fs, name, os.path.join(self._path, name), inode, kind)


def walk(fs, top, topdown=True, onerror=None, followlinks=False):
    """As os.walk."""
    top = os.fspath(top)
    directories, others, below = [], [], []
    try:
        with Scan(fs, top) as scan:
            for entry in scan:
                try:
                    is_directory = entry.is_dir()
                except OSError:
                    is_directory = False
                (directories if is_directory else others).append(entry.name)
                if is_directory and not topdown and (followlinks or not entry.is_symlink()):
                    below.append(entry.path)
    except OSError as error:
        if onerror is not None:
            onerror(error)
        return
    if not topdown:
        for path in below:
            yield from walk(fs, path, topdown, onerror, followlinks)
        yield top, directories, others
        return
    yield top, directories, others
    # The caller may have changed the list.
    for name in directories:
        path = os.path.join(top, name)
        if followlinks or not fs.islink(path):
            yield from walk(fs, path, topdown, onerror, followlinks)


def remove_tree(fs, path):
    """As shutil.rmtree without its options. What others add meanwhile makes it fail."""
    if fs.islink(path):
        raise OSError("Cannot call rmtree on a symbolic link")
    with Scan(fs, path) as scan:
        for entry in list(scan):
            if entry.is_dir(follow_symlinks=False):
                remove_tree(fs, entry.path)
            else:
                fs.remove(entry.path)
    fs.rmdir(path)
