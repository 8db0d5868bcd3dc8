"""Lists directories through the mount while the short way changes them.

    listings.py DIRECTORY ROUNDS COMMAND…       COMMAND runs python on the short way

The one on the short way makes a change and says so, and what it sees; every listing begun after that
must show the same names, inode numbers and types: by a descriptor that was open before, and by a new one. Meanwhile
others list, so that there is always an answer under way. Now and then the change is made through the mount.
"""
import ctypes, json, os, random, struct, subprocess, sys

libc = ctypes.CDLL(None, use_errno=True)
KINDS = ["make", "link", "symlink", "directory", "move", "move", "remove", "remove", "cross", "cross"]


def entries(fd, size):
    """What is listed from the beginning on: names with inode numbers and types."""
    os.lseek(fd, 0, os.SEEK_SET)
    found, space = {}, ctypes.create_string_buffer(size)
    while (got := libc.getdents64(fd, space, size)) > 0:
        at = 0
        while at < got:
            ino, _, length, kind = struct.unpack_from("=QQHB", space, at)
            name = space.raw[at + 19 : at + length].split(b"\0")[0].decode()
            if name in found:
                sys.exit(f"{name}: listed twice")
            found[name] = [ino, kind]
            at += length
    if got < 0:
        raise OSError(ctypes.get_errno(), "getdents64")
    return found


def listed(path, size=32768):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return entries(fd, size)
    finally:
        os.close(fd)


def change(top, what, a, b):
    """One change in the directories `top/0` and `top/1`, which both change then or one of them."""
    here, there = f"{top}/{a % 2}/{a}", f"{top}/{b % 2}/{b}"
    try:
        if what == "make":
            os.close(os.open(here, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        elif what == "link":
            os.link(here, there)
        elif what == "symlink":
            os.symlink("nowhere", here)
        elif what == "directory":
            os.mkdir(here)
        elif what == "cross":
            # Its listing names its parent.
            home = os.path.isdir(f"{top}/0/away")
            os.rename(f"{top}/{'01'[not home]}/away", f"{top}/{'01'[home]}/away")
        elif what == "move":
            os.rename(here, there)
        elif os.path.isdir(here) and not os.path.islink(here):
            os.rmdir(here)
        else:
            os.unlink(here)
    except OSError:
        pass  # Not there, or there already: that changes nothing.


def directories(top):
    """Both, and those in them: of these the number of the parent counts."""
    inside = [f"{name}/{entry}" for name in "01" for entry, (_, kind) in sorted(listed(f"{top}/{name}").items()) if kind == 4 and entry[0] != "."]
    return ["0", "1"] + inside


def short_way(top):
    for line in sys.stdin:
        change(top, *json.loads(line))
        print(json.dumps({name: listed(f"{top}/{name}") for name in directories(top)}), flush=True)


def others(top):
    """Lists for good, and opens for each listing anew: pages are put away whenever there are none."""
    parent = os.getppid()
    while os.getppid() == parent:
        for name in "01":
            listed(f"{top}/{name}", 4096)


def main(top, rounds, command):
    for name in "01":
        os.mkdir(f"{top}/{name}")
        # More than one answer, so that some are between two.
        for number in range(60):
            os.close(os.open(f"{top}/{name}/{'x' * 60}{number}", os.O_CREAT | os.O_WRONLY))
    os.mkdir(f"{top}/0/away")
    rng = random.Random(7)
    changer = subprocess.Popen(command + ["short", top], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    running = [changer] + [subprocess.Popen([sys.executable, __file__, "others", top]) for _ in range(2)]
    held = {name: os.open(f"{top}/{name}", os.O_RDONLY | os.O_DIRECTORY) for name in "01"}
    wrong = 0
    try:
        for round in range(rounds):
            what = [rng.choice(KINDS), rng.randrange(12), rng.randrange(12)]
            if rng.randrange(4) == 0:
                change(top, *what)
                what = ["remove", -1, 0]
            print(json.dumps(what), file=changer.stdin, flush=True)
            wanted = json.loads(changer.stdout.readline())
            for name, inside in wanted.items():
                ways = {"held": lambda: entries(held[name], 4096), "new": lambda: listed(f"{top}/{name}")}
                for way, look in ways.items():
                    if (way == "new" or name in held) and (got := look()) != inside:
                        wrong += 1
                        told = {entry: (got.get(entry), inside.get(entry)) for entry in got.keys() | inside.keys() if got.get(entry) != inside.get(entry)}
                        print(f"round {round}, {way} {name} after {what}: {told}", file=sys.stderr)
            if wrong > 5:
                break
        print(f"{round + 1} rounds, {wrong} wrong")
    finally:
        changer.stdin.close()
        for process in running[1:]:
            process.kill()
        codes = [process.wait() for process in running]
    sys.exit(codes[0])


if sys.argv[1] == "short":
    short_way(sys.argv[2])
elif sys.argv[1] == "others":
    others(sys.argv[2])
else:
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
