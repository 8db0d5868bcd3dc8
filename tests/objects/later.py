"""close=later, against server.py: what is in the store when, at what cost, and what is told of failures."""
import errno
import functools
import os
import subprocess
import sys
import urllib.error
import urllib.request

import common

mount, place, url = sys.argv[1:]
fault = functools.partial(common.fault, place)


def stored(name):
    """What the store has, or None."""
    try:
        request = urllib.request.Request(f"{url}/bucket/{name}", headers={"Authorization": "x"})
        with urllib.request.urlopen(request) as answer:
            return answer.read()
    except urllib.error.HTTPError as error:
        assert error.code == 404, error
        return None


def put(name, data):
    urllib.request.urlopen(urllib.request.Request(f"{url}/_raw/{name}", data, method="PUT"))


def log():
    with urllib.request.urlopen(url + "/_log") as answer:
        return answer.read().decode().split("\n")


def name(text):
    return os.path.join(mount, text)


def write(text, data):
    with open(name(text), "wb") as file:
        file.write(data)


def sync():
    """syncfs of the mount: what it says."""
    ended = subprocess.run(["sync", "-f", mount], capture_output=True, text=True)
    return "" if ended.returncode == 0 else ended.stderr


os.mkdir(name("later"))
before = len(log())
for number in range(200):
    write(f"later/.new{number}", b"%d" % number)
    os.rename(name(f"later/.new{number}"), name(f"later/f{number}"))
for number in range(50):
    os.remove(name(f"later/f{number}"))
for number in range(50, 60):
    write(f"later/f{number}", b"again")
found, wanted = set(os.listdir(name("later"))), {f"f{number}" for number in range(50, 200)}
assert found == wanted, found ^ wanted
assert open(name("later/f60")).read() == "60"
assert sync() == ""
for number in range(200):
    there = None if number < 50 else b"again" if number < 60 else b"%d" % number
    assert stored(f"later/f{number}") == there, number
# Nearly always one request a file, and none for one that has gone before its turn: 20 ms and more, which a busy machine may
# take for one step.
changes = [line for line in log()[before:] if line.startswith(("PUT", "DELETE", "POST"))]
assert len(changes) < 500, len(changes)

# What can't be stored is told by syncfs and by fsync, stays, and is stored when the store is back.
write("later/open", b"")
fd = os.open(name("later/open"), os.O_RDWR)
os.write(fd, b"open")
fault("500")
write("later/kept", b"kept")
assert "Input/output error" in sync()
try:
    os.fsync(fd)
    raise AssertionError("nothing was said")
except OSError as error:
    assert error.errno == errno.EIO
fault("")
os.fsync(fd)
os.close(fd)
assert sync() == ""
assert stored("later/open") == b"open"
assert stored("later/kept") == b"kept"

# Who was slower is told, once, and what is in the store stays.
write("later/race", b"first")
assert sync() == ""
fd = os.open(name("later/race"), os.O_RDWR)
os.write(fd, b"mine!")
put("later/race", b"theirs")
os.close(fd)
assert "Stale" in sync()
assert sync() == ""
assert stored("later/race") == b"theirs"
assert open(name("later/race")).read() == "theirs"

# A file that is large is stored when it is closed.
write("later/large", bytes(17 << 20))
assert len(stored("later/large")) == 17 << 20
# What nobody waits for is stored at the end of the session, or before.
write("later/last", b"last")
