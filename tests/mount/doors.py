"""Two processes take turns on one file, one through each door: what either reads is what a model says.

    doors.py FILE OPERATIONS SEED -- COMMAND…    (COMMAND…: put before a program, opens the second door)

Like fsx, which can't do it: two of them would not know of each other. This process has the model and
touches no file once it is there; each worker makes the call that it is told. What happened is a matter of the seed alone.
"""
import ctypes, mmap, os, pickle, random, subprocess, sys

LONGEST = 1 << 18
KEEP_SIZE, PUNCH_HOLE = 1, 2


def fallocate(fd, mode, offset, length):
    call = ctypes.CDLL(None, use_errno=True).fallocate
    if call(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)):
        raise OSError(ctypes.get_errno(), "fallocate")


class Worker:
    """Makes the calls, in a process of its own."""

    def __init__(self, path):
        self.path = path
        self.kept = None
        self.open()

    def open(self):
        self.fd = os.open(self.path, os.O_RDWR)
        self.appending = os.open(self.path, os.O_RDWR | os.O_APPEND)

    def reopen(self):
        os.close(self.fd)
        os.close(self.appending)
        self.open()

    def keep(self):
        """Maps all that the file may become, which it is at this moment, for good."""
        self.kept = mmap.mmap(self.fd, LONGEST)

    def ask(self):
        """Where the kernel looks for the end itself: it learns that the other one has moved it when it asks."""
        os.fstat(self.fd)

    def forget(self):
        """The kernel has pages from before the other one's stores; those that are mapped it doesn't give up."""
        self.kept.madvise(mmap.MADV_DONTNEED)
        os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def mapped(self, kept, size):
        self.ask()
        return self.kept if kept else mmap.mmap(self.fd, size)

    def read(self, offset, length):
        return os.pread(self.fd, length, offset)

    def read_on(self, offset, length):
        os.lseek(self.fd, offset, os.SEEK_SET)
        return os.read(self.fd, length)

    def read_mapped(self, kept, size, offset, length, again):
        if again:
            self.forget()
        return self.mapped(kept, size)[offset : offset + length]

    def write_mapped(self, kept, size, offset, data, again):
        if again:
            self.forget()
        pages = self.mapped(kept, size)
        pages[offset : offset + len(data)] = data
        # All of it, not more than the file: what is beyond its end is not ours to flush.
        pages.flush(0, size)

    def write(self, offset, data):
        return os.pwrite(self.fd, data, offset)

    def append(self, data):
        return os.write(self.appending, data)

    def truncate(self, length, by_path):
        (os.truncate if by_path else os.ftruncate)(self.path if by_path else self.fd, length)

    def punch(self, offset, length):
        fallocate(self.fd, PUNCH_HOLE | KEEP_SIZE, offset, length)

    def allocate(self, offset, length, keeps_size):
        fallocate(self.fd, KEEP_SIZE if keeps_size else 0, offset, length)

    def copy(self, source, target, length):
        self.ask()
        return os.copy_file_range(self.fd, self.fd, length, source, target)

    def sync(self):
        os.fsync(self.fd)

    def size(self):
        return os.fstat(self.fd).st_size, os.stat(self.path).st_size, os.lseek(self.fd, 0, os.SEEK_END)


def work(path):
    worker = Worker(path)
    while True:
        try:
            name, args = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = getattr(worker, name)(*args)
        except (OSError, ValueError) as error:
            answer = repr(error)
        pickle.dump(answer, sys.stdout.buffer)
        sys.stdout.buffer.flush()


class Model:
    """The file as it should be, and a random step for one of the workers."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.data = bytearray()
        # Stores through the short way's mapping that the kernel's pages don't show.
        self.stored_apart = False

    def part(self, end):
        """An offset and a length that is not nothing, before an end."""
        offset = self.rng.randrange(end)
        if self.rng.randrange(3) == 0:
            offset &= ~4095
        longest = self.rng.choice([64, 5000, 70000])
        return offset, self.rng.randint(1, min(longest, end - offset))

    def put(self, offset, data):
        if len(self.data) < offset:
            self.data.extend(bytes(offset - len(self.data)))
        self.data[offset : offset + len(data)] = data

    def resize(self, length):
        del self.data[length:]
        self.data.extend(bytes(length - len(self.data)))

    def step(self, is_short):
        """A call's name, its arguments and its answer; the model is as if it had been made."""
        name = self.rng.choice(NAMES)
        size = len(self.data)
        if size == 0 and name in ("read", "read_on", "read_mapped", "write_mapped", "punch", "copy"):
            name = "write"
        if name in ("read", "read_on"):
            offset, length = self.part(LONGEST)
            return name, (offset, length), bytes(self.data[offset : offset + length])
        if name in ("read_mapped", "write_mapped"):
            offset, length = self.part(size)
            kept = self.rng.randrange(2) == 0
            again = self.stored_apart and not is_short
            if again:
                self.stored_apart = False
            if name == "read_mapped":
                return name, (kept, size, offset, length, again), bytes(self.data[offset : offset + length])
            data = self.rng.randbytes(length)
            self.put(offset, data)
            self.stored_apart |= is_short
            return name, (kept, size, offset, data, again), None
        if name == "write":
            offset, length = self.part(LONGEST)
            data = self.rng.randbytes(length)
            self.put(offset, data)
            return name, (offset, data), length
        if name == "append":
            if size == LONGEST:
                return "sync", (), None
            length = self.rng.randint(1, min(9000, LONGEST - size))
            data = self.rng.randbytes(length)
            self.put(size, data)
            return name, (data,), length
        if name == "truncate":
            length = self.rng.choice([0, size // 2, self.rng.randrange(LONGEST), (size + 4095) & ~4095, size])
            self.resize(length)
            return name, (length, self.rng.randrange(2) == 0), None
        if name == "punch":
            offset, length = self.part(LONGEST)
            end = min(offset + length, size)
            if offset < end:
                self.put(offset, bytes(end - offset))
            return name, (offset, length), None
        if name == "allocate":
            offset, length = self.part(LONGEST)
            keeps_size = self.rng.randrange(2) == 0
            if not keeps_size and offset + length > size:
                self.resize(offset + length)
            return name, (offset, length, keeps_size), None
        if name == "copy":
            source, length = self.part(size)
            target = self.rng.randrange(LONGEST)
            length = min(length, LONGEST - target, abs(source - target))
            if length == 0:
                return "sync", (), None
            self.put(target, bytes(self.data[source : source + length]))
            return name, (source, target, length), length
        if name == "size":
            return name, (), (size, size, size)
        return name, (), None


NAMES = (
    ["read"] * 5 + ["read_on"] * 2 + ["read_mapped"] * 5 + ["write"] * 5 + ["write_mapped"] * 4 + ["append"] * 3
    + ["truncate"] * 3 + ["punch"] * 2 + ["allocate", "copy", "copy", "size", "size", "reopen", "sync"]
)


def shown(value):
    """Short enough to be read."""
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    return str(tuple(map(shown, value)) if isinstance(value, tuple) else value)


def difference(wanted, got):
    if not (isinstance(wanted, bytes) and isinstance(got, bytes)):
        return f"{shown(got)}, not {shown(wanted)}"
    at = next((at for at, (a, b) in enumerate(zip(wanted, got)) if a != b), min(len(wanted), len(got)))
    return f"{len(got)} bytes, not {len(wanted)}; at +{at} {got[at:at + 8].hex()}, not {wanted[at:at + 8].hex()}"


def drive(path, count, seed, command):
    open(path, "wb").close()
    program = [sys.executable, "-S", __file__, "--worker", path]
    start = lambda words: subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    workers = {"mount": start(program), "short": start(command + program)}
    past, made = [], {}

    def tell(door, name, args, wanted):
        past.append(f"{door} {name}{shown(args)}")
        made[name] = made.get(name, 0) + 1
        worker = workers[door]
        try:
            pickle.dump((name, args), worker.stdin)
            worker.stdin.flush()
            got = pickle.load(worker.stdout)
        except (EOFError, BrokenPipeError):
            got = f"the worker ended: {worker.wait()}"
        if got != wanted:
            print("\n".join(past[-12:]))
            sys.exit(f"operation {len(past)} of seed {seed}: {difference(wanted, got)}")

    try:
        model = Model(seed)
        tell("mount", "truncate", (LONGEST, False), None)
        for door in workers:
            tell(door, "keep", (), None)
        tell("short", "truncate", (0, False), None)
        for _ in range(count):
            door = model.rng.choice(["mount", "short"])
            tell(door, *model.step(door == "short"))
        for door in workers:
            tell(door, "read", (0, LONGEST), bytes(model.data))
    finally:
        for worker in workers.values():
            worker.stdin.close()
            worker.wait()
    if any(worker.returncode for worker in workers.values()):
        sys.exit(f"workers ended with {[worker.returncode for worker in workers.values()]}")
    print("fine", sum(made.values()), " ".join(f"{name}:{times}" for name, times in sorted(made.items())))


if sys.argv[1] == "--worker":
    work(sys.argv[2])
else:
    drive(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[sys.argv.index("--") + 1 :])
