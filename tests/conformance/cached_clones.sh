#!/bin/bash
# own
# needs: python3 diff
# seconds: 120
# Behind a cache image files share their data by FICLONE, FICLONERANGE, copy_file_range and `bypath clone` as in any image, and the
# directory behind it gets copies. Method: the same work in a plain directory, with copies; then both are the same, for all who
# look into the session and for all who look into the directory. Also where the image has not room for all that is behind it.
set -u
. "$(dirname "$0")/own.sh"
failed=0
mkdir m
run() { # SIZE OPTIONS COMMAND…
    local size=$1 options=$2
    shift 2
    timeout 100 "$bypath" run --no-fuse --mount "host:$PWD/low:$PWD/m,cache=$PWD/c.img:$size$options" -- "$@"
}
# work.py share|copy: clones, then writes of every kind into clones and originals.
cat >work.py <<'P'
import errno, fcntl, os, shutil, subprocess, sys
shares, bypath = sys.argv[1] == "share", sys.argv[2]
FICLONE, FICLONERANGE, BLOCK = 0x40049409, 0x4020940D, 4096
def clone(a, b):
    if not shares:
        return shutil.copyfile(a, b)
    with open(a, "rb") as source, open(b, "wb") as target:
        fcntl.ioctl(target, FICLONE, source.fileno())
def clone_range(a, at, length, b, to):
    import struct
    with open(a, "rb") as source, open(b, "r+b") as target:
        if shares:
            fcntl.ioctl(target, FICLONERANGE, struct.pack("qQQQ", source.fileno(), at, length, to))
        else:
            source.seek(at)
            target.seek(to)
            target.write(source.read(length))
def tree(a, b):
    if shares:
        subprocess.run([bypath, "clone", "-q", a, b], check=True)
    else:
        subprocess.run(["cp", "-a", a, b], check=True)
clone("d/large", "one")
clone("d/holes", "two")
clone_range("d/large", 3 * BLOCK, 40 * BLOCK, "e/whole", 7 * BLOCK)
clone_range("d/large", 0, 5 * BLOCK, "two", 1 << 20)
with open("d/large", "rb") as source, open("three", "wb") as target:
    copied = 0
    while copied < 1_000_000:
        copied += os.copy_file_range(source.fileno(), target.fileno(), 1_000_000 - copied)
tree("d", "t1")
tree("t1", "t2")
tree("t2/sub", "t1/inside")
tree("e/whole", "file")
# Into clones, into originals, a name of several, through a mapping, gone.
with open("d/large", "r+b") as f:
    f.seek(5000)
    f.write(b"original")
with open("one", "r+b") as f:
    f.seek(700_000)
    f.write(b"clone")
with open("t1/large", "ab") as f:
    f.write(b"more")
os.truncate("t2/large", 4097)
os.truncate("d/holes", 10_000)
with open("t2/hard", "r+b") as f:
    f.write(b"one of two")
import mmap
with open("t1/sub/n3", "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
    m[0:4] = b"mmap"
os.rename("t2/sub/n1", "t2/n1")
os.unlink("t1/sub/n5")
shutil.rmtree("e/gone")
tree("t2", "e/gone")
tree("e/gone", "dropped")
if shares:
    subprocess.run([bypath, "drop", "-q", "dropped"], check=True)
    rows = subprocess.run([bypath, "diff", "t2", "e/gone"], capture_output=True)
    assert (rows.returncode, rows.stdout) == (0, b""), rows
    rows = subprocess.run([bypath, "diff", "d", "t1"], capture_output=True, text=True)
    changed = {line.split("\t")[1] for line in rows.stdout.splitlines()}
    assert changed == {"large", "holes", "inside/", "sub/n3", "sub/n5"}, rows
else:
    shutil.rmtree("dropped")
P
cat >fill.sh <<'S'
mkdir -p "$1/d/sub" "$1/e/gone/x" && cd "$1" || exit 1
seq 400000 | head -c 2500000 >d/large && seq 700000 900000 >e/whole && seq 100 >d/hard && ln d/hard d/sub/same
truncate -s 3M d/holes && seq 9000 | dd of=d/holes bs=4096 seek=200 conv=notrunc status=none
for i in $(seq 120); do seq $((i * 5)) >d/sub/n$i; done
mkdir bulk && for i in 1 2 3 4 5; do seq $((i * 100000)) $((i * 100000 + 700000)) >bulk/$i || exit 1; done
ln -s large d/link && chmod 640 d/sub/n7 && touch -d 2001-02-03 d/sub/n8 d/sub && mkfifo d/fifo
S
listing() { (cd "$1" && find . -mindepth 1 ! -name '.bypath*' -printf '%P %y %m %n %l\n' | sort && find . -type f ! -name '.bypath*' -exec md5sum {} + | sort -k2 && stat -c '%n %Y' d/sub/n8 t1/sub/n8 t2/sub/n8 d/sub); }

for options in '64M:' '64M:,sync=image' '24M:'; do
    rm -rf low plain c.img && sh fill.sh low && sh fill.sh plain || fail 'fill'
    (cd plain && python3 "$work/work.py" copy "$bypath") || fail "$options: the plain directory"
    run "${options%%:*}" "${options#*:}" bash -c "cd m && cat bulk/* >/dev/null && python3 ../work.py share '$bypath'" || fail "$options: the session"
    listing plain >wanted
    listing low >got
    cmp -s wanted got || { echo "$options: the directory is not as a plain one:" && diff wanted got | head -10 && failed=1; }
    same "$options: left there" "$(ls -A low | grep -c '^\.bypath')" 0
    run "${options%%:*}" '' bash -c "$(declare -f listing); listing m" >got || fail "$options: a session after"
    cmp -s wanted got || { echo "$options: a session after sees another tree:" && diff wanted got | head -10 && failed=1; }
    "$bypath" check c.img >checked || { cat checked && failed=1; }
done

# They do share here: clones take next to nothing, and each says so.
rm -rf low c.img && sh fill.sh low
run 64M '' bash -c "cd m && cat d/large >/dev/null && for i in 1 2 3 4 5 6 7 8; do '$bypath' clone -q d c\$i || exit 1; done; cp -r --reflink=always d c9"
saved=$("$bypath" info --json c.img | python3 -c 'import json, sys; print(json.load(sys.stdin)["shared"]["saved"])')
[ "$saved" -ge $((9 * 2500000)) ] || { echo "nine clones save $saved bytes" && failed=1; }
for copy in c1 c9; do diff -r -x fifo low/d low/$copy || failed=1; done

# Killed in the middle of a clone, a session leaves what a session after sweeps away, here and below.
run 64M '' bash -c "cd m && exec timeout -s KILL 0.02 '$bypath' clone -q d killed"
run 64M '' bash -c "cd m && '$bypath' clone -q d after && '$bypath' drop -q after"
same 'left over' "$(ls -A low | grep -c aside)" 0
[ ! -e low/killed ] || diff -r -x fifo low/d low/killed || failed=1

# Where nothing may be changed it is refused.
run 64M ,ro bash -c "cd m && '$bypath' clone -q d refused" 2>&1 | grep -q 'read-only' || { echo 'read-only: not refused so' && failed=1; }
[ -e low/refused ] && failed=1
exit $failed
