#!/usr/bin/env python3
"""What a session and a program cost to start: a table on standard output.

    demo/starts.py             BYPATH=target/release/bypath
    NAMES='53000 1000000'      names of the trees behind a cache; a million takes some minutes and 4 GB of /dev/shm
    SPAWNS=1000                programs of each kind; of the times the least counts
    SESSIONS=20                sessions of each kind; the median counts
"""
import os, resource, shutil, statistics, subprocess, sys, tempfile, time

bypath = os.environ.get("BYPATH", "target/release/bypath")
spawns, sessions = int(os.environ.get("SPAWNS", "1000")), int(os.environ.get("SESSIONS", "20"))


def spawned(program, count):
    """The least time from posix_spawn to the end of the program, microseconds, and page faults of one."""
    least = float("inf")
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
    for _ in range(count):
        begun = time.perf_counter_ns()
        os.waitpid(os.posix_spawn(program, [program], os.environ), 0)
        least = min(least, time.perf_counter_ns() - begun)
    faults = (resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt - before) / count
    return f"{least / 1000:.0f} | {faults:.0f}"


if len(sys.argv) > 1:
    print(spawned(sys.argv[1], int(sys.argv[2])))
    sys.exit()

top = tempfile.mkdtemp(prefix="bypath-starts.", dir="/dev/shm")
python, this = os.path.realpath(sys.executable), os.path.abspath(__file__)


def said(*words, **environment):
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}).stdout.strip()


def programs():
    preload = os.path.join(os.path.dirname(os.path.realpath(bypath)), "libbypath_preload.so")
    empty, image, true = f"{top}/empty.so", f"{top}/i", os.path.realpath(shutil.which("true"))
    said("cc", "-shared", "-x", "c", "/dev/null", "-o", empty)
    said(bypath, "mkfs", image, "--size", "256M")
    said(bypath, "run", "--no-fuse", "--mount", f"{image}:/bp", "--", "cp", true, "/bp/true")
    words = [python, this, true, str(spawns)]
    session = [bypath, "run", "--no-fuse", "--mount", f"{image}:/bp", "--"]
    print("| `posix_spawn` of `true` and its end | least, µs | page faults |\n|---|---|---|")
    print("| bare |", said(*words), "|")
    print("| with an empty library preloaded |", said(*words, LD_PRELOAD=empty), "|")
    print("| with ours, without a session |", said(*words, LD_PRELOAD=preload), "|")
    print("| in a session |", said(*session, *words), "|")
    print("| in a session, from the image |", said(*session, python, this, "/bp/true", str(spawns)), "|")


def session(words):
    """From the start of `bypath run` to its program, and from the program's end to its own, milliseconds."""
    begun = time.time_ns()
    there = int(said(*words, "--", "date", "+%s%N"))
    return (there - begun) / 1e6, (time.time_ns() - there) / 1e6


def shown(kind, words):
    starts, ends = zip(*(session(words) for _ in range(sessions)))
    print(f"| {kind} | {statistics.median(starts):.1f} | {statistics.median(ends):.1f} |", flush=True)


def tree(names):
    low = f"{top}/low"
    shutil.rmtree(low, ignore_errors=True)
    for directory in range(names // 20):
        at = f"{low}/{directory // 400}/{directory}"
        os.makedirs(at)
        for name in range(19):
            os.close(os.open(f"{at}/f{name}", os.O_CREAT | os.O_WRONLY))
    return low


def caches():
    print("\n| session | start, ms | end, ms |\n|---|---|---|")
    shown("an image", [bypath, "run", "--no-fuse", "--mount", f"{top}/i:/bp"])
    for names in map(int, os.environ.get("NAMES", "1000 53000").split()):
        low, cache = tree(names), f"{top}/c"
        if os.path.exists(cache):
            os.remove(cache)
        words = [bypath, "run", "--no-fuse", "--mount", f"host:{low}:/d,cache={cache}:{max(64, names // 300)}M"]
        said(*words, "--", "sh", "-c", "ls -lR /d | wc -l")
        shown(f"a warm cache of {names:,} names", words)
        first = subprocess.Popen([*words, "--", "sleep", "600"])
        time.sleep(1)
        shown("the same beside another session", words)
        first.terminate()
        first.wait()


try:
    print(f"{os.uname().release}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}, {time.strftime('%F')}\n")
    programs()
    caches()
finally:
    shutil.rmtree(top, ignore_errors=True)
