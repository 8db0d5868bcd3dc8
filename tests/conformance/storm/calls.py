# Random calls on a small tree, for tests that make the same ones behind a cache and on a plain directory.
import os, random

FILES = ["f0", "f1", "f2", "f3"]
DIRECTORIES = ["d0", "d1", "d2"]
PARTS = ["", "d0/", "d1/", "d2/", "d0/d1/", "d1/d0/"]


def step(seed, worker, number):
    """One call, whatever the tree is like."""
    dice = random.Random(f"{seed}.{worker}.{number}")
    what = dice.choice("mkdir mkdir make make write write append rename rename move link unlink rmdir symlink cut mode note".split())
    parts, names = PARTS, FILES
    if what in ("mkdir", "rmdir", "move"):
        # Within one level: else the tree becomes deeper and deeper.
        parts, names = dice.choice([PARTS[:1], PARTS[1:4]]), DIRECTORIES
    one, two = (dice.choice(parts) + dice.choice(names) for _ in range(2))
    return what, one, two, dice.randrange(9000), dice.randrange(1, 4000)


def do(root, call):
    """Makes a call; its errno, or 0."""
    what, one, two, at, size = call
    one, two = root + "/" + one, root + "/" + two
    try:
        if what == "mkdir":
            os.mkdir(one)
        elif what == "make":
            os.close(os.open(one, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        elif what in ("write", "append"):
            file = os.open(one, os.O_WRONLY)
            try:
                os.pwrite(file, bytes([at % 251 + 1]) * size, os.fstat(file).st_size if what == "append" else at)
            finally:
                os.close(file)
        elif what in ("rename", "move"):
            os.rename(one, two)
        elif what == "link":
            os.link(one, two, follow_symlinks=False)
        elif what == "unlink":
            os.unlink(one)
        elif what == "rmdir":
            os.rmdir(one)
        elif what == "symlink":
            os.symlink("f%d" % at, one)
        elif what == "cut":
            os.truncate(one, at)
        elif what == "mode":
            os.chmod(one, 0o600 | at % 0o200)
        elif what == "note":
            file = os.open(one, os.O_WRONLY)
            try:
                os.fsync(file)
            finally:
                os.close(file)
    except OSError as error:
        return error.errno
    return 0


def seen(path, stat):
    """What is to be seen of a name, whose `lstat` is known: type, mode, links and contents."""
    kind, content = stat.st_mode >> 12, b""
    if kind == 10:
        content = os.readlink(path)
    elif kind != 4:
        with open(path, "rb") as file:
            content = file.read()
    return kind, stat.st_mode & 0o7777, 0 if kind == 4 else stat.st_nlink, content


def tree(root):
    """All that is to be seen of it."""
    found, todo = {}, [""]
    while todo:
        part = todo.pop()
        for entry in os.scandir(root + "/" + part):
            path = part + entry.name
            found[path] = seen(entry.path, entry.stat(follow_symlinks=False))
            if found[path][0] == 4:
                todo.append(path + "/")
    return found
