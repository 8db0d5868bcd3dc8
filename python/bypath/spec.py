"""fsspec's file system `bypath`: `bypath:///path/of/IMAGE/path/in/it`, also written `bypath:///path/of/IMAGE:/path/in/it`.

The image is the first part of the URL that is a file. Paths given to methods are those in the image.
"""

import datetime
import os
import stat as modes

from fsspec.spec import AbstractFileSystem

from ._namespace import Namespace

_PREFIX = "bypath://"


def split(url):
    """The image's path, and the path in it, of a URL without its protocol; the image is None where no file leads there."""
    image, colon, inside = url.partition(":/")
    if colon and os.path.isfile(image):
        return image, "/" + inside
    parts = url.split("/")
    for count in range(1, len(parts) + 1):
        image = "/".join(parts[:count])
        if image and not os.path.isdir(image):
            return (image, "/" + "/".join(parts[count:])) if os.path.exists(image) else (None, url)
    return None, url


class BypathFileSystem(AbstractFileSystem):
    """The files of one image."""

    protocol = "bypath"
    root_marker = "/"
    cachable = True

    def __init__(self, image=None, read_only=False, auto_mkdir=False, **kwargs):
        super().__init__(image=image, read_only=read_only, auto_mkdir=auto_mkdir, **kwargs)
        if not image:
            raise FileNotFoundError("bypath: no part of the URL is an image (bypath:///path/of/IMAGE/path/in/it)")
        self.image = os.path.abspath(image)
        self.auto_mkdir = auto_mkdir
        self.fs = Namespace().mount(self.image, "/", "ro" if read_only else None)

    @classmethod
    def _strip_protocol(cls, path):
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = os.fspath(path)
        if path.startswith(_PREFIX):
            path = split(path[len(_PREFIX) :])[1]
        return "/" + path.strip("/")

    @staticmethod
    def _get_kwargs_from_urls(url):
        return {"image": split(url[len(_PREFIX) :] if url.startswith(_PREFIX) else url)[0]}

    def unstrip_protocol(self, name):
        """The URL of a path in the image."""
        name = os.fspath(name)
        return name if name.startswith(_PREFIX) else f"{_PREFIX}{self.image}{self._strip_protocol(name)}"

    # ---- what is there ----

    def _info(self, path, found):
        kinds = {modes.S_IFDIR: "directory", modes.S_IFREG: "file", modes.S_IFLNK: "link"}
        info = {"name": path, "size": found.st_size, "type": kinds.get(modes.S_IFMT(found.st_mode), "other"), "islink": False}
        if info["type"] == "link":
            info["islink"] = True
            info["destination"] = self.fs.readlink(path)
            try:
                target = self.fs.stat(path)
                info["size"], info["type"] = target.st_size, kinds.get(modes.S_IFMT(target.st_mode), "other")
            except OSError:
                # It leads nowhere: a link it stays.
                pass
        if info["type"] == "directory":
            info["size"] = 0
        for name in ("mode", "uid", "gid", "mtime", "ino", "nlink"):
            info[name] = getattr(found, "st_" + name)
        info["created"] = found.st_ctime
        return info

    def info(self, path, **_):
        """Name, size, type and attributes."""
        path = self._strip_protocol(path)
        return self._info(path, self.fs.lstat(path))

    def ls(self, path, detail=True, **_):
        """What is in a directory; a file itself."""
        path = self._strip_protocol(path)
        try:
            with self.fs.scandir(path) as entries:
                found = [(entry.path, entry) for entry in entries]
        except NotADirectoryError:
            info = self.info(path)
            return [info] if detail else [path]
        if not detail:
            return [name for name, _ in found]
        infos = []
        for name, entry in found:
            try:
                infos.append(self._info(name, entry.stat(follow_symlinks=False)))
            except FileNotFoundError:
                # Removed meanwhile.
                continue
        return infos

    def exists(self, path, **_):
        """Whether there is something."""
        return self.fs.exists(self._strip_protocol(path))

    def isdir(self, path):
        """Whether it is a directory."""
        return self.fs.isdir(self._strip_protocol(path))

    def isfile(self, path):
        """Whether it is a regular file."""
        return self.fs.isfile(self._strip_protocol(path))

    def islink(self, path):
        """Whether it is a symlink."""
        return self.fs.islink(self._strip_protocol(path))

    def modified(self, path):
        """When it was last changed."""
        return datetime.datetime.fromtimestamp(self.fs.stat(self._strip_protocol(path)).st_mtime, tz=datetime.timezone.utc)

    def created(self, path):
        """When its attributes were last changed."""
        return datetime.datetime.fromtimestamp(self.fs.stat(self._strip_protocol(path)).st_ctime, tz=datetime.timezone.utc)

    # ---- contents ----

    def _open(self, path, mode="rb", block_size=None, autocommit=True, cache_options=None, **_):
        if not autocommit:
            raise NotImplementedError("bypath: files show at once; there are no transactions")
        path = self._strip_protocol(path)
        if self.auto_mkdir and mode[0] in "wax":
            self.makedirs(self._parent(path), exist_ok=True)
        return self.fs.open(path, mode)

    def cat_file(self, path, start=None, end=None, **_):
        """Bytes of a file, or of a part."""
        path = self._strip_protocol(path)
        if start is None and end is None:
            return self.fs.read_bytes(path)
        with self.fs.open(path, "rb", 0) as file:
            size = file.stat().st_size
            first, last, _ = slice(start, end).indices(size)
            return file.pread(max(last - first, 0), first)

    def pipe_file(self, path, value, mode="overwrite", **_):
        """Makes a file hold just this."""
        path = self._strip_protocol(path)
        if mode == "create":
            with self.fs.open(path, "xb") as file:
                file.write(value)
        else:
            self.fs.write_bytes(path, value)

    def cp_file(self, path1, path2, **_):
        """Copies a file, or makes a directory of the same name."""
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.fs.isdir(source):
            self.makedirs(target, exist_ok=True)
            return
        if self.auto_mkdir:
            self.makedirs(self._parent(target), exist_ok=True)
        self.fs.copyfile(source, target)

    def touch(self, path, truncate=True, **_):
        """Makes an empty file, or gives it today's times."""
        path = self._strip_protocol(path)
        with self.fs.open(path, "wb" if truncate else "ab", 0):
            pass
        self.fs.utime(path)

    # ---- names ----

    def mkdir(self, path, create_parents=True, **_):
        """Makes a directory."""
        path = self._strip_protocol(path)
        if create_parents:
            self.makedirs(self._parent(path), exist_ok=True)
        self.fs.mkdir(path)

    def makedirs(self, path, exist_ok=False):
        """Makes a directory, and those above it."""
        self.fs.makedirs(self._strip_protocol(path), exist_ok=exist_ok)

    def rmdir(self, path):
        """Removes an empty directory."""
        self.fs.rmdir(self._strip_protocol(path))

    def rm_file(self, path):
        """Removes a file."""
        self.fs.remove(self._strip_protocol(path))

    _rm = rm_file

    def rm(self, path, recursive=False, maxdepth=None):
        """Removes files; directories with what is in them, if `recursive`."""
        for one in path if isinstance(path, list) else [path]:
            one = self._strip_protocol(one)
            if recursive and maxdepth is None and self.fs.isdir(one) and not self.fs.islink(one):
                self.fs.rmtree(one)
            else:
                super().rm(one, recursive=recursive, maxdepth=maxdepth)

    def mv(self, path1, path2, recursive=False, maxdepth=None, **_):
        """Renames."""
        self.fs.rename(self._strip_protocol(path1), self._strip_protocol(path2))
