# own
# seconds: 900
# Nothing that has changed below before a session is ever seen as it was: whichever call comes first, on whichever path, shows what
# the directory has. Changes while the session starts, and while it goes on, are seen soon. Method: a tree that an earlier session
# has cached whole; 1,000 changes below, of contents, attributes, names and directories; then every path is first looked at in one
# of the ways there are to look, in random order, and compared with the directory; then in all ways. SEED=n ROUNDS=n (3).
import os, random, shutil, subprocess, sys, time

CHANGES = 1000
PATIENCE = 10


def put(path, size, dice):
    with open(path, "wb") as file:
        file.write(bytes([dice.randrange(1, 250)]) * size)


def make(top, dice):
    """A tree of some 1,200 names."""
    dirs = [""]
    for number in range(60):
        dirs.append(os.path.join(dice.choice(dirs[-20:]), f"d{number}"))
        os.mkdir(os.path.join(top, dirs[-1]))
    for number in range(1000):
        put(os.path.join(top, dice.choice(dirs), f"f{number}"), dice.randrange(9000), dice)
    for number in range(60):
        os.symlink(f"f{dice.randrange(1000)}", os.path.join(top, dice.choice(dirs), f"l{number}"))


def listed(top):
    dirs, files = [], []
    for at, below, names in os.walk(top):
        at = os.path.relpath(at, top)
        dirs.extend(os.path.normpath(os.path.join(at, name)) for name in below if not os.path.islink(os.path.join(top, at, name)))
        files.extend(os.path.normpath(os.path.join(at, name)) for name in names if not name.startswith(".bypath-"))
    return dirs, files


def change(top, dice, number, links=False):
    """One change of anything; what can't be done is left. Without `links` no file gets a second name: a change by one name makes
    no event for the other, and is not found by it if that name is gone again when it is looked at."""
    dirs, files = listed(top) if number % 50 == 0 or not hasattr(change, "last") else change.last
    change.last = dirs, files
    one, other, dir = dice.choice(files), dice.choice(files), dice.choice(dirs or ["d0"])
    into = os.path.join(top, dice.choice(dirs + [""]))
    path = os.path.join(top, one)
    what = dice.randrange(20)
    try:
        if what == 0 and os.path.isfile(path) and not os.path.islink(path):
            # In place, of the same size.
            with open(path, "r+b") as file:
                file.write(bytes([dice.randrange(250)]))
        elif what == 1 and not os.path.islink(path):
            with open(path, "ab") as file:
                file.write(b"more")
        elif what == 2 and not os.path.islink(path):
            os.truncate(path, dice.randrange(5000))
        elif what == 3 and not os.path.islink(path):
            os.chmod(path, dice.choice([0o600, 0o644, 0o755]))
        elif what == 4:
            os.utime(path, ns=(number * 10**9, number * 10**9), follow_symlinks=False)
        elif what in (5, 6):
            put(os.path.join(top, ".beside"), 3000, dice)
            os.rename(os.path.join(top, ".beside"), path)
        elif what == 7:
            os.unlink(path)
        elif what in (8, 9):
            put(os.path.join(into, f"n{number}"), dice.randrange(5000), dice)
        elif what in (10, 11):
            os.rename(path, os.path.join(into, os.path.basename(one) + dice.choice(["", "m"])))
        elif what == 12:
            os.rename(os.path.join(top, dir), os.path.join(into, f"d{number}"))
        elif what == 13 and dice.random() < 0.3:
            # Another directory of the same name, with some of the same names.
            old = os.path.join(top, dir)
            names = sorted(os.listdir(old))[:10]
            shutil.rmtree(old)
            os.mkdir(old)
            for name in names:
                put(os.path.join(old, name), 100, dice)
        elif what == 14:
            shutil.rmtree(os.path.join(top, dir)) if dice.random() < 0.1 else os.mkdir(os.path.join(into, f"d{number}"))
        elif what == 15:
            # A directory where a file was, and a file where a directory was.
            os.unlink(path)
            os.mkdir(path)
        elif what == 16:
            os.symlink(other, os.path.join(top, ".beside"))
            os.rename(os.path.join(top, ".beside"), path)
        elif what == 17:
            os.setxattr(path, "user.x", str(number).encode(), follow_symlinks=False)
        elif what == 18 and links:
            os.link(path, os.path.join(into, f"h{number}"), follow_symlinks=False)
        elif what == 19:
            os.rename(path, os.path.join(top, other))
    except OSError:
        pass


def shown(look):
    """What a look shows, or the error."""
    try:
        return look()
    except OSError as error:
        return f"error {error.errno}"


def read(path):
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        return hash(os.read(file, 1 << 20))
    finally:
        os.close(file)


def opened(path):
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        stat = os.fstat(file)
        return stat.st_ino, stat.st_size, stat.st_mtime_ns
    finally:
        os.close(file)


def whole(stat):
    size = 0 if stat.st_mode & 0o170000 == 0o040000 else stat.st_size
    return stat.st_ino, oct(stat.st_mode), stat.st_nlink, size, stat.st_mtime_ns, stat.st_ctime_ns


def there(path):
    dir = os.open(os.path.dirname(path), os.O_PATH)
    try:
        return whole(os.stat(os.path.basename(path), dir_fd=dir, follow_symlinks=False))
    finally:
        os.close(dir)


def names(path):
    return sorted((entry.name, entry.inode(), entry.is_dir(follow_symlinks=False), entry.is_symlink()) for entry in os.scandir(path) if not entry.name.startswith(".bypath-"))


WAYS = {
    "lstat": lambda path: whole(os.lstat(path)),
    "stat": lambda path: whole(os.stat(path)),
    "stat in its directory": there,
    "open": opened,
    "read": read,
    "names": names,
    "readlink": os.readlink,
    "access": lambda path: os.access(path, os.W_OK | os.X_OK),
    "xattr": lambda path: os.getxattr(path, "user.x", follow_symlinks=False),
    "exists": os.path.exists,
}


def is_nlink_of_top(path, way):
    # Rounds have directories of their own at the top.
    return path == "" and way in ("lstat", "stat", "stat in its directory", "open")


def differs(low, at, path, way):
    look = WAYS[way]
    wanted, got = (shown(lambda: look(os.path.join(top, path) if path else top)) for top in (low, at))
    return None if wanted == got or is_nlink_of_top(path, way) else f"{path or 'the top'}, {way}: {got}, not {wanted}"


def every(low, at, paths):
    return list(filter(None, (differs(low, at, path, way) for path in paths for way in WAYS)))


def session(low, at, old, seed, phase):
    """In the session: what is seen."""
    dice = random.Random(seed)
    paths = sorted(set(old) | set(sum(listed(low), [])) | {""})
    dice.shuffle(paths)
    if phase == "before":
        first = [(path, dice.choice(sorted(WAYS))) for path in paths]
        wrong = list(filter(None, (differs(low, at, path, way) for path, way in first)))
        wrong += every(low, at, paths)
    else:
        if phase == "during":
            for number in range(CHANGES):
                change(low, dice, number)
                shown(lambda: WAYS[dice.choice(sorted(WAYS))](os.path.join(at, dice.choice(paths))))
        else:
            while os.path.exists(phase):
                time.sleep(0.01)
        end = time.monotonic() + PATIENCE
        while True:
            paths = sorted(set(old) | set(sum(listed(low), [])) | {""})
            wrong = every(low, at, paths)
            if not wrong or time.monotonic() > end:
                break
            time.sleep(0.05)
    if wrong:
        print(f"{len(wrong)} differ", *wrong[:10], sep="\n")
        sys.exit(1)


def main():
    seed = int(os.environ.get("SEED", "1"))
    bypath, here = os.environ["bypath"], os.getcwd()
    low, at, image, failed = f"{here}/low", f"{here}/at", f"{here}/cache.img", False
    os.mkdir(at)

    def run(old, number, phase, started=None):
        with open("old", "w") as file:
            file.write("\n".join(old))
        words = [bypath, "run", "--no-fuse", "--mount", f"host:{low}:{at},cache={image}:256M", "--", sys.executable, os.path.abspath(sys.argv[0])]
        process = subprocess.Popen(words + ["session", low, at, f"{here}/old", str(number), phase], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if started:
            started()
        said = process.communicate()[0]
        if process.returncode:
            print(f"SEED={number}, changes {phase.split('/')[-1]}: exit code {process.returncode}\n{said}")
        return process.returncode == 0

    for number in range(seed, seed + int(os.environ.get("ROUNDS", "3"))):
        dice = random.Random(number)

        def begin():
            """A new tree, all of which is cached."""
            shutil.rmtree(low, ignore_errors=True)
            os.mkdir(low)
            if os.path.exists(image):
                os.remove(image)
            make(low, dice)
            subprocess.run([bypath, "run", "--no-fuse", "--mount", f"host:{low}:{at},cache={image}:256M", "--", "sh", "-c", f"ls -lR {at} >c; grep -r zz {at} >c; getfattr -dhR {at} >c 2>&1; true"], check=True)
            time.sleep(0.05)
            return sum(listed(low), [])

        old = begin()
        for one in range(CHANGES):
            change(low, dice, one, links=True)
        failed |= not run(old, number, "before")
        old = begin()
        open("changing", "w").close()

        def started():
            for one in range(CHANGES):
                change(low, dice, one)
            os.remove("changing")

        failed |= not run(old, number, f"{here}/changing", started)
        failed |= not run(sum(listed(low), []), number, "during")
    sys.exit(failed)


if len(sys.argv) > 1 and sys.argv[1] == "session":
    low, at, old, seed, phase = sys.argv[2:]
    session(low, at, open(old).read().split("\n"), int(seed), phase)
else:
    main()
