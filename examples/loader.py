#!/usr/bin/env python3
"""A data set of many small files, read in random order by several processes, as a training loop reads it.

    examples/loader.py [--files 50000] [--workers 2] [--rounds 3] [--directory /dev/shm]

The same samples lie in a directory (of tmpfs, if --directory is), in an image, in an LMDB (if the module lmdb is there), and in
a tar file with an index, and are read by worker processes that get batches of numbers, in a new order each round:

  tmpfs, open()           files of the kernel's
  bypath module           the module `bypath`, whole files
  bypath module, many     a batch of them in one call
  bypath module, maps     the same without copying: a view of the image's own pages
  bypath run, open()      the first one's code, unchanged, in a session of `bypath run`
  LMDB                    one file, a tree in it, mapped
  tar, by index           one file, each sample read at its place
  tar, in order           one file from begin to end: no random order

Every way must give the same bytes: a checksum says so. BYPATH names the command, if it is not on PATH.
"""

import argparse
import json
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "python"))
import bypath  # noqa: E402

BATCH = 64


def name_of(number):
    """A sample's path in the data set: a hundred classes."""
    return f"{number % 100:02}/{number:06}.bin"


def make(directory, files):
    """Writes the samples, 512 bytes to 8 KiB each, always the same."""
    draw = random.Random(1)
    block = draw.getrandbits(8 * 16384).to_bytes(16384, "little")
    for number in range(100):
        os.makedirs(os.path.join(directory, f"{number:02}"))
    for number in range(files):
        begin, length = draw.randrange(8192), draw.randrange(512, 8192)
        with open(os.path.join(directory, name_of(number)), "wb") as file:
            file.write(number.to_bytes(4, "little") + block[begin : begin + length])


# ---- ways to read: each has read(number), and is made anew in each worker ----


class Directory:
    """Files by the built-in open()."""

    def __init__(self, place):
        self.place = place

    def read(self, number):
        with open(f"{self.place}/{name_of(number)}", "rb") as file:
            return file.read()


class Module:
    """Whole files of an image. One namespace serves the parent and its forked workers."""

    def __init__(self, place):
        self.fs = bypath.image(place)

    def read(self, number):
        return self.fs.read_bytes(name_of(number))


class Many(Module):
    """A batch of files in one call."""

    def read_batch(self, batch):
        return self.fs.read_many([name_of(number) for number in batch])


class Maps(Module):
    """Views of an image's own pages."""

    def read(self, number):
        return self.fs.map(name_of(number))


class Lmdb:
    """A value each."""

    def __init__(self, place):
        import lmdb

        self.transaction = lmdb.open(place, readonly=True, lock=False).begin(buffers=True)

    def read(self, number):
        return self.transaction.get(b"%d" % number)


class Tar:
    """A tar file whose index says where each sample lies."""

    def __init__(self, place):
        self.file = os.open(place, os.O_RDONLY)
        with open(place + ".index") as file:
            self.index = json.load(file)

    def read(self, number):
        offset, length = self.index[number]
        return os.pread(self.file, length, offset)


WAYS = {"directory": Directory, "module": Module, "many": Many, "maps": Maps, "lmdb": Lmdb, "tar": Tar}
_way = None


def begin_worker(kind, place):
    """In each worker."""
    global _way
    _way = WAYS[kind](place)


def load(batch):
    """One batch: what a model would get, here a checksum."""
    if hasattr(_way, "read_batch"):
        return sum(map(zlib.crc32, _way.read_batch(batch)))
    read = _way.read
    return sum(zlib.crc32(read(number)) for number in batch)


def batches(files, seed):
    """All numbers in an order of their own."""
    order = list(range(files))
    random.Random(seed).shuffle(order)
    return [order[at : at + BATCH] for at in range(0, files, BATCH)]


def measure(kind, place, options):
    """Best time of a round, in seconds, and the checksum."""
    best = float("inf")
    with multiprocessing.Pool(options.workers, begin_worker, (kind, place)) as pool:
        for turn in range(options.rounds):
            jobs = batches(options.files, turn)
            begun = time.perf_counter()
            total = sum(pool.imap_unordered(load, jobs))
            best = min(best, time.perf_counter() - begun)
    return best, total


def in_order(place):
    """A tar file as a stream, by one process: time and checksum."""
    begun = time.perf_counter()
    total = 0
    with tarfile.open(place, "r|") as archive:
        for member in archive:
            if member.isfile():
                total += zlib.crc32(archive.extractfile(member).read())
    return time.perf_counter() - begun, total


# ---- the other containers ----


def make_tar(source, target, files):
    """A tar file and its index."""
    index = []
    with tarfile.open(target, "w", format=tarfile.USTAR_FORMAT) as archive:
        for number in range(files):
            info = archive.gettarinfo(os.path.join(source, name_of(number)), name_of(number))
            index.append((archive.offset + tarfile.BLOCKSIZE, info.size))
            with open(os.path.join(source, name_of(number)), "rb") as file:
                archive.addfile(info, file)
    with open(target + ".index", "w") as file:
        json.dump(index, file)


def make_lmdb(source, target, files):
    """An LMDB with a value a sample; false without the module."""
    try:
        import lmdb
    except ImportError:
        return False
    with lmdb.open(target, map_size=1 << 32) as environment, environment.begin(write=True) as transaction:
        for number in range(files):
            with open(os.path.join(source, name_of(number)), "rb") as file:
                transaction.put(b"%d" % number, file.read())
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=50000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", default="/dev/shm")
    parser.add_argument("--only", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        # In a session: the caller reads one line.
        print(json.dumps(measure(*options.only, options)))
        return
    command = os.environ.get("BYPATH") or shutil.which("bypath") or sys.exit("loader: bypath is not on PATH; set BYPATH")
    work = tempfile.mkdtemp(prefix="bypath-loader.", dir=options.directory)
    try:
        compare(command, work, options)
    finally:
        shutil.rmtree(work)


def compare(command, work, options):
    """Makes the data set in each form, reads it in each way."""
    source, image, tar, lmdb = (os.path.join(work, name) for name in ("set", "image", "set.tar", "lmdb"))
    make(source, options.files)
    size = max(64, options.files * 12 // 1024 + 64)
    subprocess.run([command, "mkfs", image, "--size", f"{size}M"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([command, "import", "-q", source, f"{image}:/"], check=True)
    make_tar(source, tar, options.files)
    has_lmdb = make_lmdb(source, lmdb, options.files)
    results = {
        "tmpfs, open()": measure("directory", source, options),
        "bypath module": measure("module", image, options),
        "bypath module, many": measure("many", image, options),
        "bypath module, maps": measure("maps", image, options),
        "bypath run, open()": in_session(command, image, options),
        "tar, by index": measure("tar", tar, options),
        "tar, in order": in_order(tar),
    }
    if has_lmdb:
        results["LMDB"] = measure("lmdb", lmdb, options)
    else:
        print("LMDB is left out: there is no module lmdb")
    wanted = results["tmpfs, open()"]
    print(f"{options.files} files, {options.workers} workers, best of {options.rounds} rounds")
    for name, (seconds, total) in results.items():
        if total != wanted[1]:
            sys.exit(f"{name}: other bytes")
        print(f"{name:22} {seconds:8.3f} s {options.files / seconds:10,.0f} samples/s {wanted[0] / seconds:6.2f} x tmpfs")


def in_session(command, image, options):
    """This program in a session of `bypath run`."""
    me = [sys.executable, os.path.abspath(__file__), "--files", str(options.files), "--workers", str(options.workers)]
    me += ["--rounds", str(options.rounds), "--only", "directory", "/bypath-set"]
    run = [command, "run", "--no-fuse", "--mount", f"{image}:/bypath-set", "--"]
    return json.loads(subprocess.run(run + me, check=True, stdout=subprocess.PIPE).stdout)


if __name__ == "__main__":
    main()
