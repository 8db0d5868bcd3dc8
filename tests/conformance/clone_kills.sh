#!/bin/bash
# own
# needs: python3
# seconds: 900
# Whoever is killed while a tree is cloned, or while what clones share is broken apart: the clone is there as a whole or not at
# all, no byte of a sibling changes, what is left aside goes with the next clone, and the image checks clean. KILLS=1000 for many
# (SECONDS_MAX=600 for the time that takes).
set -u
. "$(dirname "$0")/own.sh"
"$bypath" mkfs --size 128M image >/dev/null || fail mkfs
mkdir m
cat >write.py <<'P'
import ctypes, mmap, os, random, sys
top, rng, libc = sys.argv[1], random.Random(sys.argv[2]), ctypes.CDLL(None)
files = [os.path.join(where, name) for where, _, names in os.walk(top) for name in names]
print(flush=True)
for turn in range(100_000):
    path = rng.choice(files)
    with open(path, "r+b") as f:
        size = os.fstat(f.fileno()).st_size
        how = turn % 6
        if how < 2:
            f.seek(rng.randrange(size + 1))
            f.write(rng.randbytes(rng.choice((1, 100, 9000))))
        elif how == 2:
            f.truncate(rng.randrange(size + 5000))
        elif how == 3:
            libc.fallocate(f.fileno(), 3, ctypes.c_long(rng.randrange(size + 1)), ctypes.c_long(5000))
        elif how == 4 and size:
            with mmap.mmap(f.fileno(), 0) as m:
                m[rng.randrange(size)] = turn % 256
        else:
            os.rename(path, path + "x")
            os.rename(path + "x", path)
P
cat >drive.py <<'P'
import hashlib, os, random, signal, subprocess, sys, time
bypath, kills, limit = sys.argv[1], int(sys.argv[2]), time.monotonic() + float(sys.argv[3])
os.chdir("m")
rng = random.Random(7)
for d in range(30):
    os.makedirs(f"main/d{d % 5}/e{d}", exist_ok=True)
    for f in range(14):
        with open(f"main/d{d % 5}/e{d}/f{f}", "wb") as file:
            file.write(rng.randbytes(rng.choice((10, 4096, 20_000, 60_000))))
    os.makedirs(f"main/d{(d + 1) % 5}", exist_ok=True)
    os.link(f"main/d{d % 5}/e{d}/f1", f"main/d{(d + 1) % 5}/link{d}")
def digest(top):
    sum = hashlib.md5()
    for where, dirs, names in os.walk(top):
        dirs.sort()
        for name in sorted(names):
            with open(os.path.join(where, name), "rb") as f:
                sum.update(os.path.relpath(f.name, top).encode() + f.read())
    return sum.hexdigest()
def verb(*words):
    subprocess.run([bypath, *words], check=True)
wanted = digest("main")
begun = time.monotonic()
verb("clone", "-q", "main", "sibling")
takes, whole, done = time.monotonic() - begun, 0, 0
verb("clone", "-q", "main", "written")
for done in range(1, kills + 1):
    if done % 2:
        child = subprocess.Popen([bypath, "clone", "-q", "main", "killed"])
        time.sleep(rng.random() * takes * 1.2)
    else:
        child = subprocess.Popen([sys.executable, "../write.py", "written", str(done)], stdout=subprocess.PIPE)
        child.stdout.read(1)
        time.sleep(rng.random() * 0.03)
    child.send_signal(signal.SIGKILL)
    child.wait()
    if os.path.exists("killed"):
        whole += 1
        assert digest("killed") == wanted, f"after {done} kills: the clone is not whole"
        verb("drop", "-q", "killed")
    assert digest("main") == wanted and digest("sibling") == wanted, f"after {done} kills: a sibling has changed"
    if done % 8 == 0:
        verb("drop", "-q", "written")
        verb("clone", "-q", "main", "written")
    if time.monotonic() > limit:
        break
verb("clone", "-q", "main", "last")
assert digest("last") == wanted
verb("drop", "-q", "last", "written", "sibling")
assert os.listdir(".") == ["main"], os.listdir(".")
print(f"{done} kills; {whole} clones were whole by then")
P
"$bypath" run --no-fuse --mount "image:$work/m" -- python3 drive.py "$bypath" "${KILLS:-8}" "${SECONDS_MAX:-40}" || fail 'see above'
"$bypath" check image >checked || { cat checked && fail check; }
