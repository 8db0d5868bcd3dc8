# own
# seconds: 7200
# Everybody of a session with a cache image is killed at a random moment, the process that writes back too, again and again:
# what the next session sees, and what the directory is after `bypath cache drain`, is what a plain directory is after the
# calls that had returned, and perhaps the one that was under way. Method: workers make random calls, each in a part of its
# own, and count them outside; the same calls are made on a twin on tmpfs. KILLS=n (4) FS=ext4|xfs|btrfs (a loop device;
# default: wherever $TMPDIR is) SEED=n JOBS=n (3). With OTHERS=1 (0) other programs write below all the time, and processes
# of the session in the same files: nothing of either side is lost (storm/others.py).
import mmap, os, random, shutil, signal, struct, subprocess, sys, tempfile, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/storm")
import others
from calls import do, step, tree

WITH_OTHERS = os.environ.get("OTHERS", "0") != "0"
# Seconds that a drain may take before it is taken for one that never ends.
DRAIN_MAX = 60


def is_torn(here, before, after):
    """Whether all differs from `before` at most in bytes that are those of `after`: a write that was broken off."""
    if here.keys() != before.keys() or here.keys() != after.keys():
        return False
    for path, (kind, mode, links, content) in here.items():
        old, new = before[path], after[path]
        if (kind, mode, links) != old[:3] or len(content) not in (len(old[3]), len(new[3])):
            return False
        if kind == 8 and content not in (old[3], new[3]):
            olds, news = (text[3].ljust(len(content), b"\0") for text in (old, new))
            if any(byte not in pair for byte, *pair in zip(content, olds, news)):
                return False
    return True


class Part:
    """What one worker works on."""

    def __init__(self, top, seed, worker):
        self.seed, self.worker, self.twin = seed, worker, f"{top}/twin/{worker}"
        os.makedirs(self.twin, exist_ok=True)
        self.file = f"{top}/count{worker}"
        if not os.path.exists(self.file):
            with open(self.file, "wb") as file:
                file.write(bytes(16))
        with open(self.file, "r+b") as file:
            self.words = mmap.mmap(file.fileno(), 16)

    def get(self):
        """How many calls have returned, and how many the twin has had."""
        return struct.unpack("QQ", self.words[:])

    def settle(self, root, where):
        """Compares a tree with the twin, after the calls that have returned, or one more."""
        done, had = self.get()
        while had < done:
            do(self.twin, step(self.seed, self.worker, had))
            had += 1
        here, before = tree(root), tree(self.twin)
        if here != before:
            call = step(self.seed, self.worker, done)
            do(self.twin, call)
            after = tree(self.twin)
            done = had = done + 1
            if here != after:
                if call[0] not in ("write", "append") or not is_torn(here, before, after):
                    short = lambda seen: seen and (*seen[:3], len(seen[3]), hash(seen[3]) % 1000)
                    names = sorted(path for path in {*here, *before} if here.get(path) != before.get(path))
                    print(f"worker {self.worker}, {where}, after {done - 1} calls, before {call}: not as it was:")
                    print(*((path, short(here.get(path)), short(before.get(path)), short(after.get(path))) for path in names[:9]), sep="\n")
                    return False
                path = self.twin + "/" + call[1]
                with open(path, "r+b") as file, open(root + "/" + call[1], "rb") as source:
                    file.truncate(0)
                    file.write(source.read())
        self.words[:] = struct.pack("QQ", done, had)
        return True

    def work(self, root):
        number = self.get()[0]
        while True:
            do(root, step(self.seed, self.worker, number))
            number += 1
            self.words[:8] = struct.pack("Q", number)


def session(top, point, seed, jobs):
    """Of all workers: inside."""
    parts = [Part(top, seed, worker) for worker in range(jobs)]
    for part in parts:
        root = f"{point}/{part.worker}"
        os.makedirs(root, exist_ok=True)
        if not part.settle(root, "in the next session"):
            open(top + "/failed", "w").close()
            sys.exit(1)
    for part in parts:
        if os.fork() == 0:
            part.work(f"{point}/{part.worker}")
    for worker in range(2 if WITH_OTHERS else 0):
        if os.fork() == 0:
            others.Inside(top, f"{point}/shared", "in", worker).work()
    open(top + "/ready", "w").close()
    signal.pause()


def until(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"never: {what}")
        time.sleep(0.01)


class Storm:
    def __init__(self):
        self.bypath = os.environ["BYPATH"]
        self.seed = int(os.environ.get("SEED") or random.randrange(1 << 32))
        self.jobs = int(os.environ.get("JOBS") or 3)
        self.dice, self.lives, self.leader = random.Random(self.seed), [], None
        self.top = os.getcwd() + "/top"
        os.mkdir(self.top)
        self.point, self.image = self.top + "/m", self.top + "/c.img"
        os.mkdir(self.point)
        kind = os.environ.get("FS")
        self.scratch = self.loop(kind) if kind else tempfile.mkdtemp(prefix="bypath-storm.")
        self.low = self.scratch + "/low"
        os.mkdir(self.low)
        kind_here = subprocess.run(["stat", "-f", "-c", "%T", self.low], capture_output=True, text=True).stdout.strip()
        self.ways = ["sync=image", "sync=image", "sync=backend"]
        self.others, self.drained = None, []
        if WITH_OTHERS:
            self.others = others.Others(self.top, self.low)
        # A journal keeps its promise on a disk.
        self.ways += ["sync=journal"] if kind_here in ("ext2/ext3", "xfs") else []
        print(f"SEED={self.seed} on {kind or self.low}", flush=True)

    def loop(self, kind):
        disk, at = self.top + "/disk", self.top + "/disk.mounted"
        os.mkdir(at)
        with open(disk, "wb") as file:
            file.truncate(600 << 20)
        made = subprocess.run([f"mkfs.{kind}", "-q", "-F" if kind == "ext4" else "-f", disk])
        if made.returncode or subprocess.run(["mount", "-o", "loop", disk, at]).returncode:
            print(f"skip: no {kind} on a loop device here")
            sys.exit(0)
        return at

    def users(self):
        """Processes of the session that are not in its group: who goes on writing back when it is killed."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    words = file.read().split(b"\0")
            except OSError:
                continue
            if any(self.image.encode() in word for word in words) and int(pid) != os.getpid():
                found.append(int(pid))
        return found

    def counts(self):
        return [Part(self.top, self.seed, worker).get()[0] for worker in range(self.jobs)]

    def life(self, options):
        for name in "ready", "failed":
            if os.path.exists(f"{self.top}/{name}"):
                os.unlink(f"{self.top}/{name}")
        # Of a file in whose midst the writer is killed a copy may be kept. Where nobody else writes, that is not wanted.
        conflict = "both" if WITH_OTHERS else "ours"
        mount = f"host:{self.low}:{self.point},cache={self.image}:256M,conflict={conflict},{options}"
        command = [sys.executable, os.path.abspath(__file__), "session", self.top, self.point, str(self.seed), str(self.jobs)]
        run = [self.bypath, "run", "--no-fuse", "--mount", mount, "--", *command]
        with open(self.top + "/err", "wb") as err:
            leader = self.leader = subprocess.Popen(run, start_new_session=True, stderr=err)
        until(lambda: os.path.exists(self.top + "/ready") or leader.poll() is not None, "a session that begins")
        if leader.poll() is not None:
            with open(self.top + "/err") as err:
                sys.exit(f"a session ended: {err.read()}: {self.lives[-5:]}")
        time.sleep(self.dice.choice([0, 0.05, 0.3, 0.9]) * self.dice.random())
        how = self.dice.randrange(4)
        self.lives.append((options, how))
        if how == 0:
            # Programs go on for a moment without who started them.
            os.kill(leader.pid, signal.SIGKILL)
            time.sleep(0.2 * self.dice.random())
        others = self.users() if how != 1 else []
        os.killpg(leader.pid, signal.SIGKILL)
        for pid in others:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        leader.wait()
        self.lives[-1] += tuple(self.counts())

    def drain(self):
        begun = time.monotonic()
        try:
            command = [self.bypath, "cache", "drain", self.image]
            drained = subprocess.run(command, capture_output=True, text=True, timeout=DRAIN_MAX)
        except subprocess.TimeoutExpired:
            sys.exit(f"drain never ends: {self.lives[-3:]}")
        self.drained.append(time.monotonic() - begun)
        if drained.returncode:
            status = subprocess.run([self.bypath, "cache", "status", self.image], capture_output=True, text=True)
            sys.exit(f"drain: {drained.stderr}: {status.stdout}: {self.lives[-3:]}, {self.users()}")
        for worker in range(self.jobs):
            root = f"{self.low}/{worker}"
            os.makedirs(root, exist_ok=True)
            if not Part(self.top, self.seed, worker).settle(root, "below, after drain"):
                sys.exit(f"{self.lives[-5:]}")
        lost = self.others.check("below, after drain") if self.others else []
        if lost:
            sys.exit("\n".join([*lost, str(self.lives[-5:])]))

    def run(self, kills):
        options = "sync=image"
        for number in range(1, kills + 1):
            self.life(options)
            if number == kills or self.dice.randrange(3) == 0:
                self.drain()
                options = self.dice.choice(self.ways)
        until(lambda: not os.path.exists(self.low + "/.bypath-cache"), "all is below, and the marker goes")
        if os.path.exists(self.low + "/.bypath-park"):
            sys.exit("something is left in the park")
        checked = subprocess.run([self.bypath, "check", self.image], capture_output=True, text=True)
        if checked.returncode:
            sys.exit(checked.stdout)
        self.drained.sort()
        print(f"figure: {kills} kills, {sum(self.counts())} calls; drains: {self.drained[len(self.drained) // 2]:.2f} s, longest {self.drained[-1]:.2f} s")
        if self.others:
            print(f"figure: {self.others.lines} lines of both sides, {self.others.twice} twice, {self.others.copies} files kept twice")


if sys.argv[1:2] == ["session"]:
    session(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
else:
    storm = Storm()
    try:
        storm.run(int(os.environ.get("KILLS") or 4))
    finally:
        if storm.others:
            storm.others.end()
        if storm.leader and storm.leader.poll() is None:
            os.killpg(storm.leader.pid, signal.SIGKILL)
        if not os.environ.get("FS"):
            shutil.rmtree(storm.scratch, ignore_errors=True)
