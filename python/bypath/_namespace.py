"""A namespace: what is mounted, and what becomes of it in a forked child."""

import ctypes
import errno
import os
import threading

from ._calls import Calls
from ._handle import Handle
from ._library import lib

# Of a forked child's threads one attaches.
_attaching = threading.RLock()


class Namespace(Calls):
    """File systems under one root, apart from the kernel's and from other namespaces.

    Methods have the names, arguments and results of os (and of os.path, shutil); errors are OSError with the call's error
    number. Paths are str, bytes or PathLike. Threads may use it at once; mounting, unmounting and closing exclude other calls.
    A forked child attaches everything again at its first call, with file systems of its own where they are not images.
    """

    def __init__(self):
        self._mounts = []
        self._directory = self._mask = None
        self._handle = Handle()
        self._closed = False

    # ---- mounts ----

    def mount(self, source, point="/", options=None):
        """Mounts an image, `host:/dir`, `fuse:COMMAND ARG… @`, `plugin:LIB.so,ARG` or `mem:`; options as `ro,domain=power`."""
        source = os.fspath(source)
        kind, colon, rest = source.partition(":")
        if not (colon and kind in ("mem", "fuse", "plugin", "host")):
            source = os.path.abspath(source)
        elif kind == "host":
            source = "host:" + os.path.abspath(rest)
        self._add((source, os.fspath(point), options))
        return self

    def mount_session(self):
        """Mounts all that the session of `bypath run` around this process has."""
        self._add((None, None, None))
        return self

    def _add(self, mount):
        self._value
        _mount(self._handle, mount)
        self._mounts.append(mount)

    def umount(self, point="/"):
        """Takes a mount away that nothing uses."""
        if lib.bp_umount(self._value, self._name(point)) < 0:
            self._fail(point)
        self._mounts = [mount for mount in self._mounts if mount[1] is None or mount[1].rstrip("/") != os.fspath(point).rstrip("/")]

    def close(self):
        """Closes files, directories and mounts. Not while other threads call."""
        self._closed = True
        self._handle.close()

    def credentials_changed(self):
        """To be called after os.setuid and its kin."""
        lib.bp_credentials_changed(self._value)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        return f"<bypath.Namespace of {', '.join(source or 'a session' for source, _, _ in self._mounts) or 'nothing'}>"

    def __reduce__(self):
        return _again, (self._mounts, self._directory, self._mask)

    @property
    def _value(self):
        """The library's namespace; in a forked child its own, attached at the first call."""
        value = self._handle.value
        return self._attach_again() if value is None else value

    def _attach_again(self):
        if self._closed:
            raise ValueError("the namespace is closed")
        with _attaching:
            if self._handle.value is None:
                handle = Handle()
                self._restore(handle)
                self._handle = handle
            return self._handle.value

    def _restore(self, handle):
        for mount in self._mounts:
            if mount[0] == "mem:":
                raise OSError(errno.EBADF, "A mem: file system is its process's alone, and this process is another one")
            _mount(handle, mount)
        if self._directory is not None and lib.bp_chdir(handle.value, os.fsencode(self._directory)) < 0:
            self._fail(self._directory)
        if self._mask is not None:
            lib.bp_umask(handle.value, self._mask)


def _mount(handle, mount):
    """Mounts (source, point, options); without a source, what the session has."""
    source, point, options = (part if part is None else os.fsencode(part) for part in mount)
    done = lib.bp_mount_session(handle.value) if source is None else lib.bp_mount(handle.value, source, point, options)
    if done < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), mount[0])


def _again(mounts, directory, mask):
    """A namespace as it was in the process that pickled it."""
    fs = Namespace()
    fs._mounts, fs._directory, fs._mask = mounts, directory, mask
    fs._restore(fs._handle)
    return fs


def _child():
    global _attaching
    _attaching = threading.RLock()


os.register_at_fork(after_in_child=_child)
