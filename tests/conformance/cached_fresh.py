# own
# seconds: 1200
# What another program changes in the directory behind a cache is seen in the session: in directories that were there, that
# the session or a round made, that either side renamed, beside changes of the session, and after the round that decides about
# a file that both changed. Method: a program outside makes one change, one in the session looks until it sees it. Each has to be
# seen; how long that took is printed and not judged. ROUNDS=n (5) for each kind.
import os, subprocess, sys, tempfile, time

PATIENCE = 30


def put(path, text):
    """Replaces a file, as editors do."""
    beside = os.path.join(os.path.dirname(path), ".beside")
    with open(beside, "w") as file:
        file.write(text)
    os.rename(beside, path)


def write(path, text, at=0):
    """Writes to the file that is there."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.pwrite(file, text.encode(), at)
    finally:
        os.close(file)


def read(path):
    try:
        with open(path) as file:
            return file.read()
    except FileNotFoundError:
        return None


def sync(path):
    """Has a round made, and is back when it is over."""
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.close(file)


class Kind:
    """A kind of change: what comes before it on either side, the change, and how it is seen."""

    def __init__(self, here="", there="", change="", seen="", after=""):
        self.words = {"here": here, "there": there, "change": change, "seen": seen, "after": after}

    def do(self, word, i):
        # In the working directory of the process that does it.
        return eval(self.words[word] or "None", {**globals(), "i": i})


KINDS = {
    "replaced": Kind(here="read('old/f')", change="put('old/f', str(i))", seen="read('old/f') == str(i)"),
    "rewritten in place": Kind(here="read('old/f')", change="write('old/f', f'{i:9}')", seen="read('old/f') == f'{i:9}'"),
    "appended to": Kind(
        there="put('old/f', f'{i:9}')", here="wait(lambda: read('old/f') == f'{i:9}')", change="write('old/f', '+', 9)", seen="read('old/f')[9:10] == '+'"),
    "made": Kind(here="os.listdir('old')", change="put(f'old/n{i}', '')", seen="os.path.exists(f'old/n{i}')"),
    "removed": Kind(here="os.stat(f'old/n{i}')", change="os.unlink(f'old/n{i}')", seen="not os.path.exists(f'old/n{i}')"),
    "attributes": Kind(here="os.stat('old/f')", change="os.chmod('old/f', 0o600 + 1 - i % 2)", seen="os.stat('old/f').st_mode & 1 == 1 - i % 2"),
    "made beside a new name of the session": Kind(
        here="put(f'both/s{i}', '')", change="put(f'both/o{i}', '')", seen="os.path.exists(f'both/o{i}')"),
    "moved between directories that the session changes": Kind(
        there="put(f'both/m{i}', 'm')", here="(wait(lambda: os.path.exists(f'both/m{i}')), put(f'both/a{i}', ''), put(f'old/a{i}', ''))",
        change="os.rename(f'both/m{i}', f'old/m{i}')", seen="not os.path.exists(f'both/m{i}') and read(f'old/m{i}') == 'm'"),
    "made in a directory that a round has just made": Kind(
        here="(os.mkdir(f'new{i}'), sync(f'new{i}'))", change="put(f'new{i}/o', str(i))", seen="read(f'new{i}/o') == str(i)"),
    "replaced in a directory that a round has just made": Kind(
        here="(os.mkdir(f'two{i}'), put(f'two{i}/f', ''), sync(f'two{i}'))", change="put(f'two{i}/f', str(i))", seen="read(f'two{i}/f') == str(i)"),
    "made in a directory that the session has renamed": Kind(
        here="(os.rename(f'new{i}', f'moved{i}'), sync(f'moved{i}'))", change="put(f'moved{i}/p', '')", seen="os.path.exists(f'moved{i}/p')"),
    "made in a directory that another program has renamed": Kind(
        there="os.rename(f'two{i}', f'away{i}')", here="wait(lambda: os.path.exists(f'away{i}'))", change="put(f'away{i}/p', '')", seen="os.path.exists(f'away{i}/p')"),
    "made in a directory that the session removed and made again": Kind(
        here="(os.mkdir(f'again{i}'), sync('.'), os.rmdir(f'again{i}'), os.mkdir(f'again{i}'), sync(f'again{i}'))",
        change="put(f'again{i}/o', '')", seen="os.path.exists(f'again{i}/o')"),
    "replaced just after a round has written it": Kind(
        here="(write('own', f's{i:8}'), sync('own'))", change="put('own', f'o{i:8}')", seen="read('own') == f'o{i:8}'"),
    "changed while it is newer here, from the round's end on": Kind(
        here="(put(f'dirty', '0123456789'), sync('dirty'), write('dirty', 'S'))", change="write('dirty', 'O', 9)",
        after="sync('dirty')", seen="read('dirty') == 'S12345678O'"),
}


def wait(is_so):
    end = time.monotonic() + PATIENCE
    while not is_so():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.0005)
    return time.monotonic()


def inside():
    """In the session: obeys lines, and prints when it has seen a change."""
    for line in sys.stdin:
        word, name, number = line.rstrip("\n").split("\t")
        kind, i = KINDS[name], int(number)
        begun = time.monotonic()
        try:
            if word == "seen":
                seen = wait(lambda: kind.do("seen", i))
                print(f"{begun} {seen}", flush=True)
            else:
                kind.do(word, i)
                print(f"{time.monotonic()} done", flush=True)
        except Exception as error:
            print(f"{word} {error!r}".replace("\n", " "), "failed", flush=True)


def main():
    bypath, rounds = os.environ["BYPATH"], int(os.environ.get("ROUNDS") or 5)
    top = tempfile.mkdtemp(prefix="fresh.", dir=".")
    top = os.path.abspath(top)
    low, at = top + "/low", top + "/at"
    for name in ["", "/old", "/both"]:
        os.mkdir(low + name)
    put(low + "/old/f", "")
    os.mkdir(at)
    mount = f"host:{low}:{at},cache={top}/c.img:256M"
    command = [bypath, "run", "--no-fuse", "--mount", mount, "--", "python3", os.path.abspath(__file__), "inside", at]
    session = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    os.chdir(low)

    def ask(*line):
        print(*line, sep="\t", file=session.stdin, flush=True)

    def answer(what):
        said = session.stdout.readline().split(" ", 1)
        if not said[0] or "failed" in said[-1]:
            sys.exit(f"{what}: {' '.join(said).strip() or 'the session has ended'}")
        return said

    chosen = os.environ.get("KIND")
    for name, kind in KINDS.items():
        times = []
        if chosen and chosen not in name:
            continue
        for i in range(rounds):
            what = f"{name}, {i}"
            kind.do("there", i)
            ask("here", name, i)
            answer(what)
            if kind.words["after"]:
                kind.do("change", i)
                ask("after", name, i)
                changed = float(answer(what)[0])
                ask("seen", name, i)
            else:
                ask("seen", name, i)
                time.sleep(0.001 * (i % 7))
                changed = time.monotonic()
                kind.do("change", i)
            times.append(1000 * (float(answer(what)[1]) - changed))
        times.sort()
        print(f"{name}: {rounds} times, ms: {times[0]:.1f} at least, {times[len(times) // 2]:.1f} median, {times[-1]:.1f} at most", flush=True)
    session.stdin.close()
    if session.wait() != 0:
        sys.exit(f"the session: {session.returncode}")
    os.chdir("/")
    subprocess.run(["rm", "-rf", top], check=True)


if sys.argv[1:2] == ["inside"]:
    os.chdir(sys.argv[2])
    inside()
else:
    main()
