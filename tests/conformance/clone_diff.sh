#!/bin/bash
# `bypath diff` says of two trees of an image what `diff -r` and `git diff --no-index` say of real copies of them. The second is a
# clone of the first in which everything has been done to some file: from a seed, several times; then of two images.
# own
# needs: python3 git
# seconds: 60
set -u
. "$(dirname "$0")/own.sh"
failed=0
an_image 128M
cat >edit.py <<'P'
# edit.py DIR SEED: does something to some of what is in DIR.
import os, random, shutil, sys
top, rng = sys.argv[1], random.Random(int(sys.argv[2]))
os.chdir(top)
paths = sorted(os.path.join(at, name)[2:] for at, _, names in os.walk(".") for name in names)
directories = sorted(os.path.join(at, name)[2:] for at, names, _ in os.walk(".") for name in names)
for path in rng.sample(paths, 30):
    what = rng.randrange(10)
    if what == 0:
        os.unlink(path)
    elif what == 1:
        open(path, "a").write("more")
    elif what == 2 and os.path.getsize(path):
        with open(path, "r+b") as file:
            at = rng.randrange(os.path.getsize(path))
            file.seek(at)
            old = file.read(1)
            file.seek(at)
            file.write(bytes([old[0] ^ 1]))
    elif what == 3:
        # The same bytes, in blocks of its own.
        whole = open(path, "rb").read()
        open(path, "wb").write(whole)
    elif what == 4:
        os.truncate(path, os.path.getsize(path) // 2)
    elif what == 5:
        os.rename(path, path + ".moved")
    elif what == 6:
        os.unlink(path)
        os.symlink("elsewhere", path)
    elif what == 7:
        os.utime(path, (5, 5))
    elif what == 8:
        os.unlink(path)
        os.mkdir(path)
        open(path + "/inside", "w").write("new")
    elif what == 9:
        os.chmod(path, 0o600 if rng.random() < 0.5 else 0o755)
for i in range(3):
    os.makedirs(f"new{i}/sub")
    open(f"new{i}/sub/file", "w").write(str(i))
victim = rng.choice(directories)
shutil.rmtree(victim, ignore_errors=True)
P
cat >compare.py <<'P'
# compare.py LINES A B: whether they are what `diff -r` and git say of the copies A and B.
import os, subprocess, sys
lines, a, b = sys.argv[1:]
ours = [line.split("\t", 1) for line in open(lines).read().splitlines()]
paths = [path.rstrip("/").split("/") for _, path in ours]
assert paths == sorted(paths), "not in order"
kinds = dict((path.rstrip("/"), how) for how, path in ours)
said = subprocess.run(["diff", "-rq", "--no-dereference", a, b], capture_output=True, text=True, env={"LC_ALL": "C"}).stdout
wanted = {}
for line in said.splitlines():
    if line.startswith("Only in "):
        at, name = line[8:].split(": ", 1)
        side, rest = (a, at[len(a):]) if at == a or at.startswith(a + "/") else (b, at[len(b):])
        wanted[(rest + "/" + name).strip("/")] = "D" if side == a else "A"
    elif line.startswith("Files ") or line.startswith("Symbolic links "):
        wanted[line.split(a + "/", 1)[1].split(" and ")[0]] = "M"
    elif line.startswith("File "):
        wanted[line.split(a + "/", 1)[1].split(" is a ")[0]] = "T"
    else:
        sys.exit(f"diff says: {line}")
attributes = {path for path, how in kinds.items() if how == "P"}
others = {path: how for path, how in kinds.items() if how != "P"}
if others != wanted:
    sys.exit(f"diff -r: {sorted(set(wanted.items()) ^ set(others.items()))[:10]}")
# git lists files where a directory is alone, and knows the right to execute alone of the modes.
git = subprocess.run(["git", "diff", "--no-index", "--no-renames", "--name-status", "-z", a, b], capture_output=True, text=True)
words = git.stdout.split("\0")[:-1]
for how, path in zip(words[::2], words[1::2]):
    path = path.removeprefix(a).removeprefix(b).strip("/")
    above = [path[:i] for i in range(len(path) + 1) if i == len(path) or path[i] == "/"]
    got = next((kinds[p] for p in above if p in kinds), None)
    fits = {"A": "AT", "D": "DT", "M": "MP", "T": "T"}[how]
    if got is None or got not in fits:
        sys.exit(f"git: {how} {path}, and we: {got}")
for path in attributes:
    x, y = os.lstat(f"{a}/{path}"), os.lstat(f"{b}/{path}")
    if (x.st_mode, x.st_uid, x.st_gid) == (y.st_mode, y.st_uid, y.st_gid):
        sys.exit(f"attributes of {path} are the same")
P
in_session python3 - <<'P' || fail "make"
import os, random
rng = random.Random(1)
for d in range(12):
    os.makedirs(f"m/tree/d{d % 4}/e{d}")
    for f in range(25):
        with open(f"m/tree/d{d % 4}/e{d}/f{f}", "wb") as file:
            file.write(rng.randbytes(rng.choice([0, 10, 5000, 60000])))
os.symlink("x", "m/tree/link")
P
"$bypath" clone -q "$I:/tree" "$I:/same" || fail clone
text=$("$bypath" diff "$I:/tree" "$I:/same") || fail "a clone differs: $text"
same "a clone as JSON" "$("$bypath" diff --json "$I:/tree" "$I:/same")" "[]"
for seed in $(seq 6); do
    "$bypath" clone -q "$I:/tree" "$I:/edited" || fail clone
    in_session python3 edit.py m/edited "$seed" || fail "edit $seed"
    rm -rf a b
    "$bypath" export -q "$I:/tree" a && "$bypath" export -q "$I:/edited" b || fail export
    "$bypath" diff "$I:/tree" "$I:/edited" >lines
    same "exit code" $? 1
    python3 compare.py lines a b || fail "seed $seed: $(cat lines)"
    in_session sh -c "cd m && '$bypath' diff tree edited" | cmp - lines || fail "by the paths of a session"
    "$bypath" diff --json "$I:/tree" "$I:/edited" | python3 -c '
import json, sys
names = {"added": "A", "deleted": "D", "contents": "M", "type": "T", "attributes": "P"}
for r in json.load(sys.stdin):
    alone = r["change"] in ("added", "deleted") and "directory" in (r.get("was"), r.get("is"))
    print(names[r["change"]], r["path"] + "/" * alone, sep="\t")' | cmp - lines || fail "as JSON"
    # Of two images nothing is shared: all is read.
    rm -f other
    "$bypath" mkfs --size 128M other >/dev/null && "$bypath" import -q b other:/edited || fail "import"
    "$bypath" diff "$I:/tree" "other:/edited" | cmp - lines || fail "of two images"
    "$bypath" drop -q "$I:/edited" || fail drop
done
"$bypath" diff "$I:/tree" "$I:/none" 2>/dev/null
same "exit code of what is not there" $? 2
"$bypath" check image >/dev/null || fail check
exit $failed
