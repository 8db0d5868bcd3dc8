# Writers of both sides for cached_storm.py: processes in the session and processes outside work in one directory at the same time.
# Each line that a writer writes is one of a kind, and is counted outside when the call has returned; nobody removes one. So
# whatever was killed in between, when all is drained each line is in some file. A writer overwrites a part of a file that is its
# own: the last line there that was counted is there, or a later one.
import fcntl, os, random, re, signal, sys, time

LOGS = ["log0", "log1", "box/log", "box/sub/log"]
PLACES = ["", "box/", "box/sub/"]
SLOT = 48


def make(low):
    """What all of it begins with."""
    os.makedirs(f"{low}/shared/box/sub", exist_ok=True)
    for name in LOGS:
        open(f"{low}/shared/{name}", "a").close()
    with open(f"{low}/shared/slots", "wb") as file:
        file.write((b"." * (SLOT - 1) + b"\n") * 16)


class Side:
    """A writer: `side` is `in` or `out`."""

    def __init__(self, top, root, side, number):
        self.root, self.side, self.number = root, side, number
        self.acks = open(f"{top}/acks.{side}.{number}", "a+", buffering=1)
        self.top, self.done = top, 0
        self.acks.seek(0)
        for line in self.acks:
            self.done = max(self.done, int(line.rsplit(".", 1)[1]))
        # The one that was under way when it was killed is not written again.
        self.done += 1

    def path(self, name):
        """Others move the box away, and back."""
        path = f"{self.root}/{name}"
        if name.startswith("box/") and not os.path.exists(f"{self.root}/box"):
            path = f"{self.root}/crate{name[3:]}"
        return path

    def write(self, path, flags, data, at=None, sync=False):
        file = os.open(path, flags, 0o644)
        try:
            os.write(file, data) if at is None else os.pwrite(file, data, at)
            if sync:
                self.sync(file)
        finally:
            os.close(file)

    def sync(self, file):
        try:
            os.fsync(file)
        except OSError as error:
            # Nothing stands in the way: none has a cause to fail.
            with open(f"{self.top}/unsynced", "a") as said:
                said.write(f"{self.side}.{self.number}.{self.done}: {error}\n")

    def step(self, dice):
        self.done += 1
        token = f"{self.side}.{self.number}.{self.done}"
        line, what = token.encode() + b"\n", dice.choice(self.WHAT)
        kind = "line"
        if what == "append":
            self.write(self.path(dice.choice(LOGS)), os.O_WRONLY | os.O_APPEND, line, sync=dice.randrange(8) == 0)
        elif what == "make":
            self.write(self.path(dice.choice(PLACES) + token), os.O_WRONLY | os.O_CREAT | os.O_EXCL, line, sync=dice.randrange(8) == 0)
        elif what == "slot":
            index = self.number + (8 if self.side == "out" else 0)
            # Lines of a kind of their own: each takes the place of the one before.
            token = "s" + token
            self.write(f"{self.root}/slots", os.O_WRONLY, (token.encode() + b"\n").rjust(SLOT, b"."), index * SLOT)
            kind = "slot"
        elif what == "move":
            name = f"{self.side}.{self.number}.{self.done - dice.randrange(1, 9)}"
            os.rename(self.path(dice.choice(PLACES) + name), self.path(dice.choice(PLACES) + name))
            return
        elif what == "mode":
            os.chmod(self.path(dice.choice(LOGS + ["slots"])), 0o600 | dice.randrange(0o100))
            return
        elif what == "time":
            os.utime(self.path(dice.choice(LOGS)))
            return
        elif what == "box":
            os.rename(f"{self.root}/box", f"{self.root}/crate")
            time.sleep(0.02 * dice.random())
            os.rename(f"{self.root}/crate", f"{self.root}/box")
            return
        self.acks.write(f"{kind} {token}\n")

    def work(self):
        dice = random.Random()
        while True:
            try:
                self.step(dice)
            except OSError:
                pass
            time.sleep(0.004 * dice.random())


class Inside(Side):
    WHAT = "append append append append make make slot move mode time".split()


class Outside(Side):
    WHAT = "append append append append make make slot mode time box".split()

    def work(self):
        dice = random.Random()
        with open(f"{self.top}/still", "a") as still:
            while True:
                # Whoever looks at all of it wants it to stand still.
                fcntl.flock(still, fcntl.LOCK_SH)
                try:
                    self.step(dice)
                except OSError:
                    pass
                fcntl.flock(still, fcntl.LOCK_UN)
                time.sleep(0.004 * dice.random())


class Others:
    """All writers outside, and who looks whether anything is lost."""

    def __init__(self, top, low, writers=2):
        self.top, self.low, self.twice, self.lines, self.copies = top, f"{low}/shared", 0, 0, 0
        make(low)
        self.pids = []
        for number in range(writers):
            pid = os.fork()
            if pid == 0:
                try:
                    Outside(top, self.low, "out", number).work()
                finally:
                    os._exit(1)
            self.pids.append(pid)

    def end(self):
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self.pids = []

    def wanted(self):
        """Lines that have to be there, and of each part of a file the number of the last."""
        lines, slots = set(), {}
        for name in filter(lambda name: name.startswith("acks."), os.listdir(self.top)):
            with open(f"{self.top}/{name}") as acks:
                for said in acks:
                    if not said.endswith("\n"):
                        continue
                    kind, token = said.split()
                    if kind == "line":
                        lines.add(token)
                    else:
                        who, number = token.rsplit(".", 1)
                        slots[who] = int(number)
        return lines, slots

    def check(self, where):
        """Nothing of either side is lost: what is missing, for people; empty: nothing."""
        with open(f"{self.top}/still", "a") as still:
            fcntl.flock(still, fcntl.LOCK_EX)
            lines, slots = self.wanted()
            found, times, strange = {}, {}, []
            self.copies = 0
            for at, _, names in os.walk(self.low):
                for name in names:
                    self.copies += "bypath-theirs" in name
                    with open(f"{at}/{name}", "rb") as file:
                        text = file.read()
                    tokens = re.findall(rb"s?(?:in|out)\.\d+\.\d+(?=\n)", text)
                    if b"\0" in text:
                        strange.append(f"{at}/{name} has zeros")
                    for token in map(bytes.decode, tokens):
                        found.setdefault(token.rsplit(".", 1)[0], set()).add(int(token.rsplit(".", 1)[1]))
                        times[name, token] = times.get((name, token), 0) + 1
            lost = [token for token in lines if int(token.rsplit(".", 1)[1]) not in found.get(token.rsplit(".", 1)[0], ())]
            lost += [f"{who}.{last} or later" for who, last in slots.items() if not any(one >= last for one in found.get(who, ()))]
            self.lines, self.twice = len(lines), sum(count > 1 for count in times.values())
            if os.path.exists(f"{self.top}/unsynced"):
                with open(f"{self.top}/unsynced") as said:
                    strange += [f"fsync failed without a cause: {said.read(300)}"]
        lost.sort(key=lambda token: (token.split(".")[:2], len(token), token))
        return [f"{where}: lost {len(lost)} of {len(lines)}: {lost[:8]}"] * bool(lost) + strange[:5]
