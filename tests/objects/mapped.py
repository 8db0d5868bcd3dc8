"""What needs memory that is shared with the file, in the directory argv[1]: a mapping that is stored into, SQLite's WAL; and
what an object can't be, which is refused at once. Says the sum of what it has left."""
import errno
import hashlib
import mmap
import os
import random
import sqlite3
import sys

from common import fails

place = sys.argv[1]
os.mkdir(place)
path, draw, model = os.path.join(place, "file"), random.Random(5), bytearray(300_000)
with open(path, "w+b") as file:
    file.truncate(len(model))
    with mmap.mmap(file.fileno(), len(model)) as mapping:
        for _ in range(300):
            at, data = draw.randrange(len(model) - 1000), draw.randbytes(draw.randrange(1, 1000))
            mapping[at : at + len(data)] = data
            model[at : at + len(data)] = data
        mapping.flush()
with open(path, "rb") as file:
    assert file.read() == bytes(model)


fails(errno.EPERM, os.link, path, path + ".link")
fails(errno.EPERM, os.symlink, path, path + ".link")
fails(errno.EPERM, os.mkfifo, path + ".fifo")
fails(errno.EOPNOTSUPP, os.setxattr, path, "user.a", b"1")
assert os.listxattr(path) == []
# A file without a name gets its first one.
fd = os.open(place, os.O_TMPFILE | os.O_RDWR)
os.write(fd, b"unnamed")
os.link(f"/proc/self/fd/{fd}", os.path.join(place, "named"), src_dir_fd=os.open("/", os.O_RDONLY), follow_symlinks=True)
os.fsync(fd)
os.close(fd)
base = sqlite3.connect(os.path.join(place, "db"))
assert base.execute("pragma journal_mode=wal").fetchone() == ("wal",)
base.execute("create table t(a)")
for number in range(200):
    with base:
        base.execute("insert into t values(?)", (number,))
assert base.execute("select sum(a) from t").fetchone() == (19900,)
assert base.execute("pragma integrity_check").fetchone() == ("ok",)
base.close()
print(hashlib.md5(model).hexdigest(), "", path)
