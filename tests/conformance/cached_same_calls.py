# own
# seconds: 60
# Each call behind a cache says what it says on a plain directory, while rounds move the same names below all the time. Method:
# three processes make random calls, each in a part of its own, behind the cache and beside it, and compare the errno of each, and
# what a name leads to. DURATION=n (10) seconds a way, SEED=n.
import os, random, subprocess, sys, tempfile, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/storm")
from calls import do, seen, step, tree

JOBS = 3


def look(path):
    """What is to be seen of a name, or its errno."""
    try:
        return seen(path, os.lstat(path))
    except OSError as error:
        return error.errno


def work(here, plain, seed, worker, end):
    os.mkdir(here)
    os.mkdir(plain)
    number = 0
    while time.monotonic() < end:
        call = step(seed, worker, number)
        number += 1
        said, wanted = do(here, call), do(plain, call)
        if number % 8 == 0 and said == wanted:
            said, wanted = (look(f"{root}/{call[1]}") for root in (here, plain))
        if said != wanted:
            short = lambda what: (*what[:3], len(what[3])) if isinstance(what, tuple) else what
            return f"call {number} of {worker}, {call}: {short(said)}, not {short(wanted)}"
    return None if tree(here) == tree(plain) else f"{worker}: the trees differ after {number} calls"


def session(top, point, seed):
    end = time.monotonic() + float(os.environ.get("DURATION") or 10)
    for worker in range(JOBS):
        if os.fork() == 0:
            wrong = work(f"{point}/{worker}", f"{top}/plain/{worker}", seed, worker, end)
            if wrong:
                print(wrong, flush=True)
            os._exit(bool(wrong))
    sys.exit(any([os.wait()[1] for _ in range(JOBS)]))


if sys.argv[1:2] == ["session"]:
    session(*sys.argv[2:5])
bypath, seed = os.environ["BYPATH"], os.environ.get("SEED") or str(random.randrange(1 << 32))
for way in "sync=backend", "sync=image":
    with tempfile.TemporaryDirectory(prefix="bypath-same.", dir=os.getcwd()) as top:
        for name in "low", "point", "plain":
            os.mkdir(f"{top}/{name}")
        mount = f"host:{top}/low:{top}/point,cache={top}/c.img:256M,{way}"
        words = [sys.executable, os.path.abspath(__file__), "session", top, f"{top}/point", seed]
        ran = subprocess.run([bypath, "run", "--no-fuse", "--mount", mount, "--", *words], capture_output=True, text=True)
        if ran.returncode or ran.stderr:
            sys.exit(f"SEED={seed} {way}: {ran.stdout}{ran.stderr}")
        below, wanted = tree(f"{top}/low"), tree(f"{top}/plain")
        if below != wanted:
            differ = sorted(path for path in {*below, *wanted} if below.get(path) != wanted.get(path))
            sys.exit(f"SEED={seed} {way}: below: {differ[:9]}")
