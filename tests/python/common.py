"""What the tests of the Python module share: scratch directories on tmpfs, images, the programs' places."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BYPATH = os.path.realpath(os.environ.get("BYPATH", os.path.join(ROOT, "target/release/bypath")))
os.environ.setdefault("BYPATH_LIBRARY", os.path.join(os.path.dirname(BYPATH), "libbypath.so"))
# Installed, where the caller says so: else from the source tree.
if not os.environ.get("BYPATH_INSTALLED"):
    sys.path.insert(0, os.path.join(ROOT, "python"))

import bypath  # noqa: E402


@contextlib.contextmanager
def scratch():
    """A directory on tmpfs, with shared caches of its own."""
    directory = tempfile.mkdtemp(prefix="bypath-py.", dir=os.environ.get("SHM", "/dev/shm"))
    before = os.environ.get("BYPATH_SEGMENT_DIR")
    os.environ["BYPATH_SEGMENT_DIR"] = directory
    try:
        yield directory
    finally:
        if before is None:
            del os.environ["BYPATH_SEGMENT_DIR"]
        else:
            os.environ["BYPATH_SEGMENT_DIR"] = before
        shutil.rmtree(directory)


def image(directory, size="64M"):
    """A fresh image in it: its path."""
    path = os.path.join(directory, "image")
    subprocess.run([BYPATH, "mkfs", path, "--size", size], check=True, stdout=subprocess.DEVNULL)
    return path


def namespace(directory, source="image"):
    """A namespace on a fresh image, or on a fresh directory of the kernel's."""
    if source == "image":
        return bypath.image(image(directory))
    below = os.path.join(directory, "below")
    os.mkdir(below)
    return bypath.Namespace().mount("host:" + below)


def check(path):
    """The image is sound."""
    subprocess.run([BYPATH, "check", path], check=True, stdout=subprocess.DEVNULL)
