"""Memory of files as Python sees it: memoryviews that give it back when the last of them is gone."""

import ctypes
import mmap

from ._library import lib

_PAGE = mmap.PAGESIZE


# Of one type whatever its length, since types stay; whoever makes a view cuts it to length.
class _Pages(ctypes.c_ubyte * (1 << 46)):
    def __del__(self):
        self.give_back(*self.what)


def _view(address, give_back, what, first, end, writable):
    pages = _Pages.from_address(address)
    pages.give_back, pages.what = give_back, what
    view = memoryview(pages).cast("B")[first:end]
    return view if writable else view.toreadonly()


def map_open(handle, fd, length, offset, writable):
    """A mapping of a part of an open file, which may be closed before it goes; None with errno."""
    if length == 0:
        return memoryview(bytearray() if writable else b"")
    first = offset % _PAGE
    prot = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    address = handle.map(fd, first + length, prot, mmap.MAP_SHARED, offset - first)
    if address is None:
        return None
    return _view(address, handle.unmap, (address, first + length), first, first + length, writable)


def view_of(fs, path):
    """All bytes of a file where they lie, its fd open meanwhile; mapped where they are not in one piece."""
    start, length = ctypes.c_void_p(), ctypes.c_size_t()
    fd = lib.bp_open_view(fs._value, fs._name(path), ctypes.byref(start), ctypes.byref(length))
    if fd < 0:
        fs._fail(path)
    handle = fs._handle
    if start.value is not None:
        handle.keep()
        return _view(start.value, handle.give_back, (fd,), 0, length.value, False)
    try:
        view = map_open(handle, fd, length.value, 0, False)
        return fs._fail(path) if view is None else view
    finally:
        lib.bp_close(handle.value, fd)
