"""posix: what one session sets, another one finds, and the store's metadata say so in the words of s3fs.

    posix.py make|look DIRECTORY URL
"""
import os
import stat
import sys
import time
import urllib.request

what, place, url = sys.argv[1:]
key = "posix/"


def head(name):
    request = urllib.request.Request(f"{url}/bucket/{key}{name}", headers={"Authorization": "x"}, method="HEAD")
    with urllib.request.urlopen(request) as answer:
        return {name[11:].lower(): value for name, value in answer.headers.items() if name.lower().startswith("x-amz-meta-")}


def name(text):
    return os.path.join(place, text)


if what == "make":
    os.mkdir(place)
    with open(name("file"), "w") as file:
        file.write("bytes")
    os.chmod(name("file"), 0o4751)
    os.utime(name("file"), ns=(5, 1_234_567_890_123_456_789))
    with open(name("moved"), "w") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write("moved")
    os.rename(name("moved"), name("new"))
    os.symlink("../elsewhere/file", name("link"))
    os.symlink("file", name("near"))
    assert open(name("near")).read() == "bytes"
    # Changed alone, of a file that has been stored.
    with open(name("later"), "w") as file:
        file.write("later")
        os.fsync(file.fileno())
    os.chmod(name("later"), 0o444)
    if os.geteuid() == 0:
        os.chown(name("later"), 7, 8)
else:
    about = os.stat(name("file"))
    assert (stat.S_IMODE(about.st_mode), about.st_mtime_ns) == (0o4751, 1_234_567_890_123_456_789), about
    assert head("file") == {"mode": str(0o104751), "uid": str(about.st_uid), "gid": str(about.st_gid), "mtime": "1234567890.123456789"}, head("file")
    assert stat.S_IMODE(os.stat(name("new")).st_mode) == 0o600
    assert os.readlink(name("link")) == "../elsewhere/file"
    assert open(name("near")).read() == "bytes" and stat.S_ISLNK(os.lstat(name("near")).st_mode)
    assert head("link")["mode"] == "41471"
    about = os.stat(name("later"))
    assert stat.S_IMODE(about.st_mode) == 0o444 and open(name("later")).read() == "later"
    assert os.geteuid() or (about.st_uid, about.st_gid) == (7, 8), about
    kinds = {entry.name: (entry.is_symlink(), entry.is_file(follow_symlinks=False)) for entry in os.scandir(place)}
    assert kinds == {name: (name in ("link", "near"), name not in ("link", "near")) for name in ("file", "new", "link", "near", "later")}, kinds
    # What s3fs has written.
    headers = {"x-amz-meta-mode": "33060", "x-amz-meta-uid": "9", "x-amz-meta-gid": "10", "x-amz-meta-mtime": "77"}
    urllib.request.urlopen(urllib.request.Request(f"{url}/_raw/{key}theirs/x", b"theirs", headers, method="PUT"))
    # A name that is new is seen a second later at the latest.
    until = time.monotonic() + 60
    while not os.path.exists(name("theirs/x")):
        assert time.monotonic() < until
        time.sleep(0.1)
    about = os.stat(name("theirs/x"))
    assert (stat.S_IMODE(about.st_mode), about.st_uid, about.st_gid, about.st_mtime) == (0o444, 9, 10, 77), about
    os.remove(name("link"))
    assert not os.path.lexists(name("link"))
