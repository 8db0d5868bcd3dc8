"""The calls of os, os.path and shutil on what a namespace has mounted."""

import ctypes
import errno
import os
import stat as modes
import sys
from shutil import SameFileError

from ._directories import Scan, remove_tree, walk
from ._files import File, open_file
from ._library import lib
from ._maps import view_of
from ._memory import PART, STATVFS_SIZE, Bytes, parts, stat_result, stats, statvfs_result, timespecs

# Bytes of a pointer, and of a length.
_WORD = ctypes.sizeof(ctypes.c_ssize_t)
_AT_FDCWD = -100
_AT_SYMLINK_NOFOLLOW = 0x100
_RENAME_NOREPLACE = 1
_ENCODING = sys.getfilesystemencoding()


class Calls:
    """What `Namespace` can do, mounts apart: `_value` is the library's namespace."""

    # ---- helpers of all calls ----

    @staticmethod
    def _name(path):
        # os.fsencode takes longer than most calls.
        name = path.encode(_ENCODING, "surrogateescape") if type(path) is str else os.fsencode(path)
        if b"\0" in name:
            raise ValueError("embedded null byte")
        return name

    @staticmethod
    def _fail(path=None, other=None):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path, None, other)

    def _by_path(self, call, path, *args):
        if call(self._value, self._name(path), *args) < 0:
            self._fail(path)

    def _by_two(self, call, first, second):
        if call(self._value, self._name(first), self._name(second)) < 0:
            self._fail(first, second)

    def _written(self, call, path, *args):
        """What a call writes into a buffer."""
        buffer = parts.take()
        got = call(self._value, self._name(path), *args, buffer, PART)
        number = ctypes.get_errno()
        found = buffer[:got] if got >= 0 else None
        parts.put(buffer)
        if found is None:
            raise OSError(number, os.strerror(number), path)
        return found

    # ---- files ----

    def open(self, path, mode="r", buffering=-1, encoding=None, errors=None, newline=None):
        """As the built-in open()."""
        return open_file(self, path, mode, buffering, encoding, errors, newline)

    def open_raw(self, path, flags=os.O_RDONLY, mode=0o666):
        """A `File` by the flags of os.open."""
        return File(self, path, flags, mode)

    def read_bytes(self, path):
        """All that is in a file: the quickest way to read a small one."""
        buffer = parts.take()
        got = lib.bp_read_path(self._value, self._name(path), buffer, PART, 0)
        number = ctypes.get_errno()
        data = buffer[:got] if got >= 0 else b""
        parts.put(buffer)
        if got == PART or got < 0 and number == errno.ESPIPE:
            with File(self, path, os.O_RDONLY) as file:
                return file.readall()
        if got < 0:
            raise OSError(number, os.strerror(number), path)
        return data

    def read_many(self, paths):
        """All that is in each of these files, as a list: one call of C for many small ones."""
        paths = list(paths)
        count, found, buffer = len(paths), [], parts.take()
        texts = (ctypes.c_char_p * count)(*map(self._name, paths))
        lengths = (ctypes.c_ssize_t * count)()
        try:
            view = memoryview(buffer)
            while len(found) < count:
                at, end = len(found), 0
                here = ctypes.byref(texts, at * _WORD), ctypes.byref(lengths, at * _WORD)
                got = lib.bp_read_many(self._value, here[0], count - at, buffer, PART, here[1])
                if got < 0:
                    self._fail()
                if got == 0:
                    found.append(self.read_bytes(paths[at]))
                for length in lengths[at : at + got]:
                    if length < 0:
                        raise OSError(-length, os.strerror(-length), paths[len(found)])
                    found.append(view[end : end + length].tobytes())
                    end += length
        finally:
            parts.put(buffer)
        return found

    def read_into(self, path, buffer, offset=0):
        """Reads a file from `offset` on into a buffer, which may be used again for the next one: how many bytes."""
        with Bytes(buffer, writable=True) as (address, length):
            got = lib.bp_read_path(self._value, self._name(path), address, length, offset)
            if got < 0:
                self._fail(path)
            return got

    def write_bytes(self, path, data):
        """Makes a file hold just this; how many bytes."""
        with self.open(path, "wb", 0) as file, memoryview(data).cast("B") as view:
            at = 0
            while at < len(view):
                at += file.write(view[at:])
            return at

    def read_text(self, path, encoding=None, errors=None):
        """All that is in a file, as text."""
        with self.open(path, "r", encoding=encoding, errors=errors) as file:
            return file.read()

    def write_text(self, path, text, encoding=None, errors=None, newline=None):
        """Makes a file hold just this text."""
        with self.open(path, "w", encoding=encoding, errors=errors, newline=newline) as file:
            return file.write(text)

    def copyfile(self, source, target):
        """As shutil.copyfile, within the namespace: no byte passes through Python."""
        if self._is_same(source, target):
            raise SameFileError(f"{source!r} and {target!r} are the same file")
        with self.open(source, "rb", 0) as from_file, self.open(target, "wb", 0) as to_file:
            from_file.copy_to(to_file)
        return target

    def _is_same(self, source, target):
        try:
            first, second = self.stat(source), self.stat(target)
        except OSError:
            return False
        return (first.st_dev, first.st_ino) == (second.st_dev, second.st_ino)

    def map(self, path, length=None, offset=0, writable=False):
        """A memoryview of a file's own memory, without copying: see `File.map`."""
        if length is None and offset == 0 and not writable:
            return view_of(self, path)
        with self.open_raw(path, os.O_RDWR if writable else os.O_RDONLY) as file:
            return file.map(length, offset, writable)

    def truncate(self, path, length):
        """As os.truncate."""
        self._by_path(lib.bp_truncate, path, length)

    # ---- what is known of a path ----

    def stat(self, path, *, follow_symlinks=True):
        """As os.stat."""
        buffer = stats.take()
        call = lib.bp_stat if follow_symlinks else lib.bp_lstat
        result = stat_result(buffer) if call(self._value, self._name(path), buffer) >= 0 else None
        stats.put(buffer)
        if result is None:
            self._fail(path)
        return result

    def lstat(self, path):
        """As os.lstat."""
        return self.stat(path, follow_symlinks=False)

    def access(self, path, mode):
        """As os.access."""
        return lib.bp_access(self._value, self._name(path), mode) == 0

    def exists(self, path):
        """As os.path.exists."""
        return self.access(path, os.F_OK)

    def lexists(self, path):
        """As os.path.lexists."""
        return self._mode(path, False) != 0

    def isfile(self, path):
        """As os.path.isfile."""
        return modes.S_ISREG(self._mode(path, True))

    def isdir(self, path):
        """As os.path.isdir."""
        return modes.S_ISDIR(self._mode(path, True))

    def islink(self, path):
        """As os.path.islink."""
        return modes.S_ISLNK(self._mode(path, False))

    def _mode(self, path, follow_symlinks):
        try:
            return self.stat(path, follow_symlinks=follow_symlinks).st_mode
        except (OSError, ValueError):
            return 0

    def getsize(self, path):
        """As os.path.getsize."""
        return self.stat(path).st_size

    def statvfs(self, path):
        """As os.statvfs."""
        buffer = ctypes.create_string_buffer(STATVFS_SIZE)
        self._by_path(lib.bp_statvfs, path, buffer)
        return statvfs_result(buffer)

    def readlink(self, path):
        """As os.readlink."""
        text = self._written(lib.bp_readlink, path)
        return text if isinstance(os.fspath(path), bytes) else os.fsdecode(text)

    # ---- directories ----

    def listdir(self, path="."):
        """As os.listdir."""
        with Scan(self, path) as scan:
            return scan.names()

    def scandir(self, path="."):
        """As os.scandir."""
        return Scan(self, path)

    def walk(self, top, topdown=True, onerror=None, followlinks=False):
        """As os.walk."""
        return walk(self, top, topdown, onerror, followlinks)

    def mkdir(self, path, mode=0o777):
        """As os.mkdir."""
        self._by_path(lib.bp_mkdir, path, mode)

    def makedirs(self, path, mode=0o777, exist_ok=False):
        """As os.makedirs."""
        path = os.fspath(path)
        try:
            self.mkdir(path, mode)
            return
        except FileNotFoundError:
            parent = os.path.dirname(path.rstrip(os.sep if isinstance(path, str) else os.fsencode(os.sep)))
            if not parent or parent == path:
                raise
        except OSError:
            if not exist_ok or not self.isdir(path):
                raise
            return
        self.makedirs(parent, exist_ok=True)
        self.makedirs(path, mode, exist_ok)

    def rmdir(self, path):
        """As os.rmdir."""
        self._by_path(lib.bp_rmdir, path)

    def rmtree(self, path):
        """As shutil.rmtree."""
        remove_tree(self, path)

    def chdir(self, path):
        """As os.chdir, for this namespace: where relative paths begin."""
        self._by_path(lib.bp_chdir, path)
        self._directory = self.getcwd()

    def getcwd(self):
        """As os.getcwd."""
        buffer = ctypes.create_string_buffer(4097)
        if lib.bp_getcwd(self._value, buffer, len(buffer)) is None:
            self._fail()
        return os.fsdecode(buffer.value)

    # ---- names ----

    def remove(self, path):
        """As os.remove."""
        self._by_path(lib.bp_unlink, path)

    unlink = remove

    def rename(self, source, target):
        """As os.rename: what `target` is on is replaced at once."""
        self._by_two(lib.bp_rename, source, target)

    replace = rename

    def rename_new(self, source, target):
        """Renames; FileExistsError where there is something already."""
        names = self._name(source), self._name(target)
        if lib.bp_renameat2(self._value, _AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_NOREPLACE) < 0:
            self._fail(source, target)

    def link(self, source, target):
        """As os.link."""
        self._by_two(lib.bp_link, source, target)

    def symlink(self, source, target, target_is_directory=False):
        """As os.symlink."""
        self._by_two(lib.bp_symlink, source, target)

    def mkfifo(self, path, mode=0o666):
        """As os.mkfifo."""
        self._by_path(lib.bp_mkfifo, path, mode)

    def mknod(self, path, mode=0o600, device=0):
        """As os.mknod."""
        self._by_path(lib.bp_mknod, path, mode, device)

    # ---- attributes ----

    def chmod(self, path, mode):
        """As os.chmod."""
        self._by_path(lib.bp_chmod, path, mode)

    def chown(self, path, uid, gid, *, follow_symlinks=True):
        """As os.chown."""
        call = lib.bp_chown if follow_symlinks else lib.bp_lchown
        self._by_path(call, path, uid & 0xFFFFFFFF, gid & 0xFFFFFFFF)

    def utime(self, path, times=None, *, ns=None, follow_symlinks=True):
        """As os.utime."""
        if times is not None and ns is not None:
            raise ValueError("utime: you may specify either 'times' or 'ns' but not both")
        if times is not None:
            ns = [int(part // 1) * 1000000000 + int(part % 1 * 1000000000) for part in times]
        values = None if ns is None else timespecs(*ns)
        flags = 0 if follow_symlinks else _AT_SYMLINK_NOFOLLOW
        if lib.bp_utimensat(self._value, _AT_FDCWD, self._name(path), values, flags) < 0:
            self._fail(path)

    def umask(self, mask):
        """As os.umask, for this namespace."""
        self._mask = mask
        return lib.bp_umask(self._value, mask)

    def getxattr(self, path, attribute, *, follow_symlinks=True):
        """As os.getxattr."""
        call = lib.bp_getxattr if follow_symlinks else lib.bp_lgetxattr
        return self._written(call, path, self._name(attribute))

    def setxattr(self, path, attribute, value, flags=0, *, follow_symlinks=True):
        """As os.setxattr."""
        call = lib.bp_setxattr if follow_symlinks else lib.bp_lsetxattr
        value = bytes(value)
        self._by_path(call, path, self._name(attribute), value, len(value), flags)

    def listxattr(self, path, *, follow_symlinks=True):
        """As os.listxattr."""
        call = lib.bp_listxattr if follow_symlinks else lib.bp_llistxattr
        return [os.fsdecode(name) for name in self._written(call, path).split(b"\0") if name]

    def removexattr(self, path, attribute, *, follow_symlinks=True):
        """As os.removexattr."""
        call = lib.bp_removexattr if follow_symlinks else lib.bp_lremovexattr
        self._by_path(call, path, self._name(attribute))

    def sync(self):
        """As os.sync, for what is mounted here."""
        lib.bp_sync(self._value)
