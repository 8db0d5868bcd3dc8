"""Of a large file that was changed in a few places, only the parts of 8 MiB around those are sent: the store copies the rest.

    parts.py DIRECTORY URL: the bucket is at DIRECTORY, and the store says at URL what it was asked for.
"""
import errno
import hashlib
import os
import sys
import time
import urllib.request

directory, url = sys.argv[1:]
MB = 1 << 20
SIZE = 64 * MB + 12345
failed = []


def get(path):
    with urllib.request.urlopen(url + path) as answer:
        return answer.read()


def raw(key, data):
    urllib.request.urlopen(urllib.request.Request(url + "/_raw/" + key, data, method="PUT"))


def requests_of(key, since):
    lines = [line.split() for line in get("/_log").decode().splitlines()[since:]]
    lines = [line for line in lines if line[:2] == ["PUT", key]]
    sent = sum(int(word[6:]) for line in lines for word in line if word.startswith("bytes="))
    return sent / MB, sum("copy" in line for line in lines)


def count():
    return len(get("/_log").decode().splitlines())


def expect(what, got, wanted):
    if got != wanted:
        failed.append("%s: %r instead of %r" % (what, got, wanted))


def etag_free(key):
    request = urllib.request.Request(url + "/bucket/" + key, headers={"Authorization": "x"})
    with urllib.request.urlopen(request) as answer:
        return hashlib.md5(answer.read()).hexdigest()


def change(what, key, data, change, most, copies, to=None):
    """A file of these contents, changed here and in memory: what the store has, and what was sent at most."""
    raw(key, bytes(data))
    since, path = count(), os.path.join(directory, key)
    # What others make is seen a second later at the latest.
    while not os.path.exists(path):
        time.sleep(0.05)
    with open(path, "r+b", buffering=0) as file:
        change(file, data)
        if to:
            os.rename(path, os.path.join(directory, to))
    expect(what, etag_free(to or key), hashlib.md5(data).hexdigest())
    sent, copied = requests_of(to or key, since)
    expect(what + ", copied parts", copied, copies)
    if sent > most:
        failed.append("%s: %.1f MiB were sent" % (what, sent))


def data():
    return bytearray(hashlib.shake_128(b"parts").digest(SIZE))


def write(at, length):
    def change(file, data):
        new = os.urandom(length)
        file.seek(at)
        file.write(new)
        data[at : at + length] = new

    return change


def cut(length):
    def change(file, data):
        file.truncate(length)
        del data[length:]
        data.extend(bytes(length - len(data)))

    return change


def several(*changes):
    def change(file, data):
        for each in changes:
            each(file, data)

    return change


# What is left over at the end is sent too: 12,345 bytes.
change("one MiB in the middle", "parts-middle", data(), write(20 * MB, MB), 8.1, 7)
change("across a border", "parts-border", data(), write(16 * MB - 1, 2), 16.1, 6)
change("appended", "parts-appended", data(), write(SIZE, MB), 1.1, 8)
change("cut off", "parts-cut", data(), cut(40 * MB + 1), 0.1, 5)
change("cut off and longer again", "parts-longer", data(), several(cut(30 * MB), cut(60 * MB)), 37, 3)
change("twice, with a sync between", "parts-twice", data(),
       several(write(0, 10), lambda file, _: os.fsync(file.fileno()), write(63 * MB, 10)), 16.1, 14)
change("moved", "parts-moved", data(), write(0, 10), 8.1, 7, to="parts-moved-to")

# Somebody else was quicker: nothing of the two is mixed.
raw("parts-lost", bytes(data()))
while not os.path.exists(os.path.join(directory, "parts-lost")):
    time.sleep(0.05)
fd = os.open(os.path.join(directory, "parts-lost"), os.O_RDWR)
os.pwrite(fd, b"mine", 0)
raw("parts-lost", b"theirs" * 10_000_000)
try:
    os.fsync(fd)
    failed.append("a lost race is not told")
except OSError as error:
    expect("a lost race", errno.errorcode[error.errno], "ESTALE")
try:
    os.close(fd)
except OSError as error:
    expect("the close after it", errno.errorcode[error.errno], "ESTALE")
expect("what is there", etag_free("parts-lost"), hashlib.md5(b"theirs" * 10_000_000).hexdigest())
print(*failed, sep="\n", end="")
sys.exit(bool(failed))
