"""One attached namespace of the C library, and who may still use it.

Invariants: `value` is what calls are made with; it is None once the namespace was closed, and in a forked child, where the
library answers calls on None with an error. Memory that is mapped keeps the namespace until the last view of it is gone.
"""

import ctypes
import os
import weakref

from ._library import lib

# Those that a forked child must forget.
_all = weakref.WeakSet()


class Handle:
    """Of one namespace, in the process that opened it."""

    __slots__ = ("value", "_raw", "_views", "_closing", "__weakref__")

    def __init__(self):
        self._views = 0
        self._closing = False
        self.value = self._raw = lib.bp_open_namespace()
        _all.add(self)

    def close(self):
        """Closes the namespace: at once, or when the last view of mapped memory is gone."""
        self.value = None
        self._closing = True
        self._settle()

    # Called while the interpreter ends, too, when globals are gone.
    def _settle(self, _close=lib.bp_close_namespace):
        if self._closing and self._views == 0 and self._raw is not None:
            raw, self._raw = self._raw, None
            _close(raw)

    def _forked(self):
        # The parent's: this process forgets it, and what it holds is the parent's to give back.
        self.value = self._raw = None

    def __del__(self):
        self.close()

    def map(self, fd, length, prot, flags, offset):
        """Maps a part of an open file: an address, or None with errno."""
        address = lib.bp_mmap(self.value, None, length, prot, flags, fd, offset)
        if address is None or address == ctypes.c_void_p(-1).value:
            return None
        self.keep()
        return address

    def keep(self):
        """One more view of its memory."""
        self._views += 1

    def give_back(self, fd, _close=lib.bp_close):
        """A view that kept this fd open is gone."""
        if self._raw is not None:
            _close(self._raw, fd)
            self._views -= 1
            self._settle()

    def unmap(self, address, length, _unmap=lib.bp_munmap, _kernel=ctypes.CDLL(None).munmap):
        """Gives it back."""
        if self._raw is None:
            # In a forked child the memory is a copy of the parent's.
            _kernel(ctypes.c_void_p(address), ctypes.c_size_t(length))
            return
        _unmap(self._raw, address, length)
        self._views -= 1
        self._settle()


def _forget():
    for handle in list(_all):
        handle._forked()


os.register_at_fork(after_in_child=_forget)
