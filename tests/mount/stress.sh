# Four preloaded and two un-preloaded processes change the same 100 files at once. Each
# file says what it should hold: lines `writer number` in rising order for each writer,
# whatever it is called now. Both ways must show the same at every moment of rest.
seconds=${STRESS:-10}
"$bypath" mount "$image" "$mnt" || exit 1
mkdir "$mnt/s"
cat >"$work/stress.py" <<'PY'
import errno, fcntl, mmap, os, random, sys, time
directory, who, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
rng = random.Random(who)
number, end, counts = 0, time.monotonic() + seconds, {}
def name():
    return f"{directory}/f{rng.randrange(100)}"
def append(path, fd):
    global number
    number += 1
    fcntl.lockf(fd, fcntl.LOCK_EX)
    before = os.fstat(fd).st_size
    data = f"{who} {number:08d}\n".encode()
    if os.write(fd, data) != len(data):
        sys.exit(f"{path}: short write")
    after = os.fstat(fd)
    # Whoever has the lock is the only one who appends.
    if after.st_size != before + len(data):
        sys.exit(f"{path}: {before} + {len(data)} bytes became {after.st_size}")
    if os.pread(fd, len(data), before) != data:
        sys.exit(f"{path}: something else at {before}")
    fcntl.lockf(fd, fcntl.LOCK_UN)
def look(path, fd):
    fcntl.lockf(fd, fcntl.LOCK_SH)
    size = os.fstat(fd).st_size
    if size:
        with mmap.mmap(fd, size, prot=mmap.PROT_READ) as mapped:
            mapped_bytes = bytes(mapped[:])
            # Inside: the mapping has a descriptor of its own, and its end is the lock's.
            if mapped_bytes != os.pread(fd, size, 0):
                sys.exit(f"{path}: the mapping is not the file")
        last = {}
        for line in mapped_bytes.splitlines():
            writer, value = line.split()
            if int(value) <= last.get(writer, 0):
                sys.exit(f"{path}: {line} after {last[writer]}")
            last[writer] = int(value)
    fcntl.lockf(fd, fcntl.LOCK_UN)
while time.monotonic() < end:
    path = name()
    what = rng.choice("aaaaalllrtunm")
    counts[what] = counts.get(what, 0) + 1
    try:
        if what in "al":
            # Opened only to be read, it may be kept by the kernel.
            only_read = what == "l" and rng.randrange(2)
            fd = os.open(path, os.O_RDONLY if only_read else os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                (append if what == "a" else look)(path, fd)
            finally:
                os.close(fd)
        elif what == "r":
            os.rename(path, name())
        elif what == "t":
            fd = os.open(path, os.O_RDWR)
            fcntl.lockf(fd, fcntl.LOCK_EX)
            os.ftruncate(fd, 0)
            if os.fstat(fd).st_size:
                sys.exit(f"{path}: not empty after truncation")
            os.close(fd)
        elif what == "u":
            os.unlink(path)
        elif what == "n":
            own = f"{directory}/own-{who}"
            os.mkdir(own)
            os.stat(own)
            os.rmdir(own)
            if os.path.exists(own):
                sys.exit(f"{own}: still there")
        elif what == "m":
            st = os.stat(path)
            with os.scandir(directory) as entries:
                list(entries)
    except OSError as error:
        # Removed on the short way between look-up and open: as on NFS.
        if error.errno not in (errno.ENOENT, errno.ESTALE):
            raise

print("fine", who, sum(counts.values()))
PY
export PYTHONDONTWRITEBYTECODE=1
short python3 -c '
import subprocess, sys
# A file each: one line may be several writes, and those of two writers would mix.
children = [subprocess.Popen([sys.executable] + sys.argv[1:3] + [f"p{i}", sys.argv[3]],
    stdout=open(f"{sys.argv[4]}/p{i}.out", "w"), stderr=subprocess.STDOUT) for i in range(4)]
sys.exit(max(child.wait() for child in children))
' "$work/stress.py" "$mnt/s" "$seconds" "$work" >"$work/short.out" 2>&1 &
for i in 0 1; do python3 "$work/stress.py" "$mnt/s" "k$i" "$seconds" >"$work/k$i.out" 2>&1 & done
wait
same 'preloaded processes find nothing wrong' "$(cat "$work"/p?.out | grep -c '^fine')" 4
same 'nor do the others' "$(cat "$work"/k?.out | grep -c '^fine')" 2
grep -hv '^fine' "$work/short.out" "$work"/[pk]?.out | tail -4
both=$(short sh -c "cd $mnt/s && ls -la --full-time | tail -n +2 && cat f*" | cksum)
same 'both ways show the same in the end' "$(cd "$mnt/s" && { ls -la --full-time | tail -n +2 && cat f*; } | cksum)" "$both"
cat "$work"/[pk]?.out | awk '/^fine/ { n += $3 } END { print "     stress: " n " operations" }'
"$bypath" umount "$mnt"
