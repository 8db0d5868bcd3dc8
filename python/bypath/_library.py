"""libbypath.so: where it is, and its calls as ctypes sees them.

All calls give up the interpreter's lock while they run. Results below zero (or NULL) mean failure, with errno.
"""

import ctypes
import os
import pathlib
import shutil

# One letter a type: i int, u unsigned, z size_t, s ssize_t, o off_t, l unsigned long, p pointer, t text.
TYPES = {
    "i": ctypes.c_int,
    "u": ctypes.c_uint,
    "z": ctypes.c_size_t,
    "s": ctypes.c_ssize_t,
    "o": ctypes.c_int64,
    "l": ctypes.c_ulong,
    "p": ctypes.c_void_p,
    "t": ctypes.c_char_p,
    "-": None,
}

# Result, then arguments. The first one, the namespace, is not written.
CALLS = {
    "close_namespace": "i",
    "mount": "ittt",
    "mount_session": "i",
    "umount": "it",
    "credentials_changed": "-",
    "open": "itiu",
    "stat": "itp",
    "lstat": "itp",
    "access": "iti",
    "mkdir": "itu",
    "mknod": "itul",
    "mkfifo": "itu",
    "rmdir": "it",
    "unlink": "it",
    "renameat2": "iititu",
    "rename": "itt",
    "link": "itt",
    "symlink": "itt",
    "readlink": "stpz",
    "chmod": "itu",
    "chown": "ituu",
    "lchown": "ituu",
    "utimensat": "iitpi",
    "truncate": "ito",
    "chdir": "it",
    "umask": "uu",
    "getxattr": "sttpz",
    "lgetxattr": "sttpz",
    "setxattr": "ittpzi",
    "lsetxattr": "ittpzi",
    "listxattr": "stpz",
    "llistxattr": "stpz",
    "removexattr": "itt",
    "lremovexattr": "itt",
    "getcwd": "ppz",
    "statvfs": "itp",
    "close": "ii",
    "read": "sipz",
    "write": "sipz",
    "pread": "sipzo",
    "pwrite": "sipzo",
    "lseek": "oioi",
    "fstat": "iip",
    "ftruncate": "iio",
    "fallocate": "iiioo",
    "flock": "iii",
    "fsync": "ii",
    "fdatasync": "ii",
    "copy_file_range": "sipipzu",
    "getdents64": "sipz",
    "sync": "-",
    "read_path": "stpzo",
    "read_many": "spzpzp",
    "open_view": "itpp",
    "mmap": "ppziiio",
    "munmap": "ipz",
    "msync": "ipzi",
}


def places():
    """Where libbypath.so may be, the likeliest first."""
    named = os.environ.get("BYPATH_LIBRARY")
    if named:
        yield pathlib.Path(named)
        return
    here = pathlib.Path(__file__).resolve()
    source = here.parents[2]
    if (source / "crates" / "capi").is_dir():
        yield source / os.environ.get("CARGO_TARGET_DIR", "target") / "release" / "libbypath.so"
    # Installed: beside the interpreter's library, or beside `bypath`.
    for parent in here.parents[1:5]:
        yield parent / "libbypath.so"
        yield parent / "lib" / "libbypath.so"
    program = shutil.which("bypath")
    if program:
        directory = pathlib.Path(program).resolve().parent
        yield directory / "libbypath.so"
        yield directory.parent / "lib" / "libbypath.so"


def load():
    """The library with its calls declared."""
    found = next((path for path in places() if path.is_file()), "libbypath.so")
    try:
        library = ctypes.CDLL(str(found), use_errno=True)
    except OSError as error:
        raise ImportError(f"bypath: libbypath.so cannot be loaded (BYPATH_LIBRARY names it): {error}") from error
    library.bp_open_namespace.restype = ctypes.c_void_p
    library.bp_open_namespace.argtypes = []
    for name, types in CALLS.items():
        call = getattr(library, "bp_" + name)
        call.restype = TYPES[types[0]]
        call.argtypes = [ctypes.c_void_p] + [TYPES[letter] for letter in types[1:]]
    return library


lib = load()
