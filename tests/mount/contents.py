"""A file that the kernel keeps is changed while it is read through the mount: no read is older than a finished change.

    contents.py FILE ROUNDS SEED -- COMMAND…    (COMMAND…: put before a program, opens the short way)

The file has been at rest, so who opens it to read gets it from the kernel's pages. This process holds it open so, reads it
without a pause in two threads, and says to a worker on the short way what to change, or changes it itself through the mount.
After each change it compares the whole file with a model. In the first half another worker writes the first bytes of the file
all the time, which are not compared: so every answer to the kernel may be overtaken by a notice. The second half has what is
not exact then (docs/reference/kernel-mount.md): the file gets shorter; and in its last part, without the two threads, the worker stores into a mapping.
"""
import mmap, os, random, subprocess, sys, threading

NOISE = 8
LONGEST = 40_000


def change(fd, mapped, what, at, data, size):
    """Makes a change; what it maps is kept."""
    if what == "write":
        os.pwrite(fd, data, at)
    elif what == "append":
        os.lseek(fd, 0, os.SEEK_END)
        os.write(fd, data)
    elif what == "truncate":
        os.ftruncate(fd, size)
    elif what == "store":
        if not mapped or len(mapped[-1]) < at + len(data):
            mapped.append(mmap.mmap(fd, 0))
        mapped[-1][at : at + len(data)] = data


def work(path):
    """Makes the changes that it is told of, one a line."""
    fd, mapped = os.open(path, os.O_RDWR), []
    for line in sys.stdin:
        what, at, data, size = line.split()
        change(fd, mapped, what, int(at), bytes.fromhex(data), int(size))
        print("done", flush=True)


def disturb(path):
    """Changes the first bytes until its input ends."""
    fd, over = os.open(path, os.O_WRONLY), threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    number = 0
    while not over.is_set():
        number += 1
        os.pwrite(fd, number.to_bytes(NOISE, "little"), 0)


def model_of(model, what, at, data, size):
    if what == "append":
        at = len(model)
    if what == "truncate":
        model[size:] = bytes(max(0, size - len(model)))
    else:
        model[len(model) :] = bytes(max(0, at - len(model)))
        model[at : at + len(data)] = data


def main(path, rounds, seed, command):
    rng = random.Random(seed)
    fd, over = os.open(path, os.O_RDONLY), threading.Event()
    model = bytearray(os.pread(fd, 1 << 20, 0))

    def read_on():
        own = os.open(path, os.O_RDONLY)
        while not over.is_set():
            os.pread(own, 1 << 20, rng.randrange(8) * 4096)

    start = lambda role: subprocess.Popen(command + [sys.executable, "-S", __file__, role, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    noise, worker = start("disturb"), start("work")
    readers = [threading.Thread(target=read_on, daemon=True) for _ in range(2)]
    for reader in readers:
        reader.start()
    wrong = []
    for number in range(rounds):
        part = number * 4 // rounds
        if part == 2 and noise.poll() is None:
            noise.stdin.close()
            noise.wait()
        if part == 3:
            over.set()
        # The mapping comes late: after it nothing is kept.
        what = rng.choice(["write", "append", "truncate"] + ["store"] * 3 * (part == 3))
        at, data = rng.randrange(NOISE, len(model)), rng.randbytes(rng.choice([1, 100, 5000]))
        size = rng.randrange(NOISE + 1 if part == 2 else len(model), LONGEST + 1)
        if what == "append" and len(model) + len(data) > LONGEST:
            what = "write"
        data = data[: (len(model) if what == "store" else LONGEST) - at]
        way = "mount" if what != "store" and rng.randrange(4) == 0 else "short way"
        if part < 2 and len(model) > LONGEST - 6000:
            # Through the mount the kernel makes it shorter itself.
            way, what, size = "mount", "truncate", 3 * NOISE
        if way == "mount":
            own = os.open(path, os.O_RDWR)
            change(own, [], what, at, data, size)
            os.close(own)
        else:
            print(what, at, data.hex(), size, file=worker.stdin, flush=True)
            if (answer := worker.stdout.readline()) != "done\n":
                sys.exit(f"the worker said {answer!r}")
        model_of(model, what, at, data, size)
        got = os.pread(fd, 1 << 20, 0)
        if len(got) != len(model):
            wrong.append(f"{number}: {what} by the {way}: {len(got)} bytes, not {len(model)}")
        elif got[NOISE:] != model[NOISE:]:
            first = next(i for i in range(NOISE, len(got)) if got[i] != model[i])
            wrong.append(f"{number}: {what} by the {way}: another byte at {first} of {len(got)}")
    over.set()
    for reader in readers:
        reader.join()
    worker.stdin.close()
    codes = noise.wait(), worker.wait()
    print(f"{rounds} rounds, {len(wrong)} wrong, workers {codes}", *wrong[:9], sep="\n")


role, path = sys.argv[1:3]
if role == "work":
    work(path)
elif role == "disturb":
    disturb(path)
else:
    main(role, int(path), int(sys.argv[3]), sys.argv[sys.argv.index("--") + 1 :])
