"""Bypath from Python: images, directories and FUSE daemons without system calls, by libbypath.so.

    import bypath

    with bypath.image("/dev/shm/work.img") as fs:
        fs.makedirs("/data/a", exist_ok=True)
        with fs.open("/data/a/text", "w") as file:
            file.write("hello\\n")
        for entry in fs.scandir("/data"):
            print(entry.name, entry.is_dir())
        view = fs.map("/data/a/text")       # a memoryview of the image's own pages

The kernel, and so os, subprocess and mmap, do not know these files; in a session of `bypath run` the built-in open() and os
reach them without this module. With fsspec installed, `fsspec.open("bypath:///dev/shm/work.img/data/a/text")` works.
"""

from ._directories import DirEntry
from ._files import File
from ._namespace import Namespace

__all__ = ["DirEntry", "File", "Namespace", "image", "session"]


def image(path, read_only=False):
    """A namespace whose root is an image."""
    return Namespace().mount(path, "/", "ro" if read_only else None)


def session():
    """A namespace with what the session of `bypath run` around this process has."""
    return Namespace().mount_session()
