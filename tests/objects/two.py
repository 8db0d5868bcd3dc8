"""Run in one session on a bucket, which starts programs in another one: what is closed there is found here at the next open,
and who writes over what somebody else has written meanwhile hears of it. STEPS: how many, in a random order."""
import errno
import os
import random
import subprocess
import sys
import time

from common import fails

bypath, store = sys.argv[1:]
other = subprocess.Popen(
    [bypath, "run", "--no-fuse", "--mount", f"s3:{store}:/other", "--", sys.executable, "-c", """
import os, sys
held = None
for line in sys.stdin:
    how, name, text = line.rstrip("\\n").split(" ", 2)
    if how == "read":
        try:
            print(open("/other/" + name).read(), flush=True)
        except FileNotFoundError:
            print("-", flush=True)
    elif how == "hold":
        held = os.open("/other/" + name, os.O_RDWR | os.O_TRUNC)
        os.write(held, text.encode())
        print("held", flush=True)
    elif how == "drop":
        try:
            os.close(held)
            print("done", flush=True)
        except OSError as error:
            print(error.errno, flush=True)
    else:
        with open("/other/" + name, "w") as file:
            file.write(text)
        print("done", flush=True)
"""],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={k: v for k, v in os.environ.items() if not k.startswith(("LD_PRELOAD", "BYPATH"))})


def ask(how, name, text=""):
    other.stdin.write(f"{how} {name} {text}\n")
    other.stdin.flush()
    return other.stdout.readline().rstrip("\n")


os.mkdir("/s3/two")
# Close-to-open, in either direction, in a random order.
# All names are there first: what is new elsewhere is seen by name a second later at the latest.
draw, model = random.Random(3), {"two/" + name: "new" for name in ("f0", "f1", "f2", "f3", "race")}
for name, text in model.items():
    with open("/s3/" + name, "w") as file:
        file.write(text)
until = time.monotonic() + 60
while any(ask("read", name) == "-" for name in model):
    assert time.monotonic() < until
for step in range(int(os.environ.get("STEPS", "300"))):
    name = "two/f%d" % draw.randrange(4)
    match draw.randrange(6):
        case 0:
            model[name] = "here %d %s" % (step, "x" * draw.randrange(100))
            with open("/s3/" + name, "w") as file:
                file.write(model[name])
        case 1:
            model[name] = "there %d %s" % (step, "y" * draw.randrange(100))
            assert ask("write", name, model[name]) == "done"
        case 2:
            assert ask("read", name) == model[name], (step, name)
        case 3:
            with open("/s3/" + name) as file:
                assert os.fstat(file.fileno()).st_size == len(model[name]), (step, name)
                assert file.read() == model[name], (step, name)
        case 4:
            # Both have it open, written to: who closes first has stored it, the other one hears of it, and changes nothing.
            fd = os.open("/s3/" + name, os.O_RDWR | os.O_TRUNC)
            os.write(fd, b"here, raced %d" % step)
            assert ask("hold", name, "there, raced %d" % step) == "held"
            if draw.randrange(2):
                os.close(fd)
                assert ask("drop", name) == str(errno.ESTALE), step
                model[name] = "here, raced %d" % step
            else:
                assert ask("drop", name) == "done", step
                fails(errno.ESTALE, os.close, fd)
                model[name] = "there, raced %d" % step
        case 5:
            # Behind an fsync, which is as good as a close.
            fd = os.open("/s3/" + name, os.O_WRONLY | os.O_TRUNC)
            model[name] = "here, synced %d" % step
            os.write(fd, model[name].encode())
            os.fsync(fd)
            assert ask("read", name) == model[name], (step, name)
            os.close(fd)

# A lost race.
fd = os.open("/s3/two/race", os.O_RDWR)
os.write(fd, b"mine")
assert ask("write", "two/race", "theirs") == "done"
fails(errno.ESTALE, os.fsync, fd)
fails(errno.ESTALE, os.close, fd)
assert open("/s3/two/race").read() == "theirs"
fd = os.open("/s3/two/fresh", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
os.write(fd, b"mine")
assert ask("write", "two/fresh", "theirs") == "done"
fails(errno.ESTALE, os.close, fd)
assert open("/s3/two/fresh").read() == "theirs"

# What an object can't be.
fails(errno.EPERM, os.link, "/s3/two/race", "/s3/two/link")
fails(errno.EPERM, os.symlink, "race", "/s3/two/link")
fails(errno.EOPNOTSUPP, os.setxattr, "/s3/two/race", "user.a", b"1")
fails(errno.EILSEQ, os.mkdir, b"/s3/two/\xff")
fails(errno.EINVAL, os.mkdir, "/s3/two/blank ")
# Kept for the session.
os.chmod("/s3/two/race", 0o751)
os.utime("/s3/two/race", (5, 7))
about = os.stat("/s3/two/race")
assert (about.st_mode & 0o777, about.st_mtime) == (0o751, 7), about
other.stdin.close()
assert other.wait(60) == 0
