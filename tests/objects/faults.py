"""A store that fails: each call says so, no later than the time-out of 2 s and some."""
import errno
import functools
import os
import sys
import time
import urllib.request

import common

mount, place, url = sys.argv[1:]
fault = functools.partial(common.fault, place)


def fails(number, call, *arguments):
    begun = time.monotonic()
    common.fails(number, call, *arguments)
    # Three times the time-out: a call may take more than one request.
    assert time.monotonic() - begun < 30


def name(text):
    return os.path.join(mount, text)


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)


data = bytes(range(256)) * 4000
for number in range(8):
    write(name("r%d" % number), data)

readable = iter(range(8))
for how, number in (("500", errno.EIO), ("slow", errno.EIO), ("403", errno.EACCES)):
    fault(how)
    fails(number, open, name("r%d" % next(readable)))
    fails(number, os.mkdir, name("fails-" + how))
    fault("")
for how in ("cut", "short"):
    file = open(name("r%d" % next(readable)), "rb", buffering=0)
    fault(how)
    fails(errno.EIO, file.read, len(data))
    fault("")
    file.seek(0)
    assert file.readall() == data, "after it has come to itself"

# What could not be stored is not lost: a later fsync stores it.
for how, number in (("500", errno.EIO), ("slow", errno.EIO), ("403", errno.EACCES)):
    fd = os.open(name("w-" + how), os.O_CREAT | os.O_RDWR)
    os.write(fd, data)
    fault(how)
    fails(number, os.fsync, fd)
    fault("")
    os.fsync(fd)
    os.close(fd)
    with urllib.request.urlopen(urllib.request.Request(url + "/bucket/w-" + how, headers={"Authorization": "x"})) as answer:
        assert answer.read() == data

# An upload whose answer is lost was one all the same.
fd = os.open(name("lost"), os.O_CREAT | os.O_RDWR)
os.write(fd, b"once")
fault("lost")
os.fsync(fd)
os.close(fd)
assert open(name("lost")).read() == "once"
# Parts are put together.
large = os.urandom(40 << 20)
write(name("large"), large)
with urllib.request.urlopen(urllib.request.Request(url + "/bucket/large", headers={"Authorization": "x"})) as answer:
    assert answer.read() == large
