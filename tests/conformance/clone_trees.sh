#!/bin/bash
# `bypath clone` makes a second tree of one, told from it by nothing but what is written later; all of it or nothing: where the
# image is full, where a file may not be read, where it is killed, stopped or in the way of another one. `bypath drop` removes
# trees, those too whose directories are shut, and gives back all that they had alone.
# own
# needs: python3 getfattr
# seconds: 60
set -u
. "$(dirname "$0")/own.sh"
failed=0
an_image 256M
entries() { "$bypath" ls -a --json "$I:/" | python3 -c 'import json, sys; print(*[e["name"] for e in json.load(sys.stdin)])'; }
used() { in_session python3 -c 'import os, sys; s = os.statvfs("m"); print((s.f_blocks - s.f_bfree) * 4 // 1024)'; }

# What there can be: types, names, modes, times, attributes, holes, several extents, several names inside and outside.
cat >make.py <<'P'
import os, sys
os.makedirs("m/tree/sub/deep/" + "x" * 200)
for size in (0, 1, 4096, 5000, 3_000_000):
    with open(f"m/tree/f{size}", "wb") as file:
        file.write(os.urandom(size))
with open("m/tree/holes", "wb") as file:
    for i in range(0, 40, 2):
        file.seek(i * 8192)
        file.write(os.urandom(5000))
    file.truncate(500_000)
os.link("m/tree/f1", "m/tree/sub/same")
os.link("m/tree/f4096", "m/outside")
os.symlink("../f1", "m/tree/sub/link")
os.symlink("t" * 300, "m/tree/long")
os.mkfifo("m/tree/fifo")
os.setxattr("m/tree/f5000", "user.large", b"v" * 9000)
os.setxattr("m/tree/sub", "user.small", b"1")
for i in range(500):
    with open(f"m/tree/sub/deep/n{i}", "w") as file:
        file.write(str(i) * i)
os.chmod("m/tree/f5000", 0o4755)
os.chmod("m/tree/sub/deep", 0o555)
if os.getuid() == 0:
    os.chown("m/tree/f1", 1234, 5678)
    os.mknod("m/tree/null", 0o20600, os.makedev(1, 3))
for at, name in enumerate(["sub/deep/n7", "sub/deep", "sub", "f0", "holes", "."]):
    os.utime("m/tree/" + name, ns=(10**18 + at, 10**18 - at))
P
# listing DIR: all that a clone shares with its original, a line a name.
cat >listing.py <<'P'
import hashlib, os, stat, sys
top, seen = sys.argv[1], {}
for at, directories, files in os.walk(top):
    directories.sort()
    for name in sorted(files) + sorted(d for d in directories) + ["."]:
        path = os.path.join(at, name)
        s = os.lstat(path)
        line = [os.path.relpath(path, top), oct(s.st_mode), s.st_uid, s.st_gid, s.st_mtime_ns, s.st_atime_ns, s.st_rdev]
        if not stat.S_ISDIR(s.st_mode):
            line += [s.st_size, s.st_blocks, seen.setdefault(s.st_ino, line[0])]
        if stat.S_ISREG(s.st_mode):
            line += [hashlib.sha1(open(path, "rb").read()).hexdigest()]
        if stat.S_ISLNK(s.st_mode):
            line += [os.readlink(path)]
        line += [(x, os.getxattr(path, x, follow_symlinks=False)[:50]) for x in sorted(os.listxattr(path, follow_symlinks=False))]
        print(*line)
P
in_session python3 make.py || fail "make"
before=$(used)
json=$("$bypath" clone --json "$I:/tree" "$I:/a") || fail "clone"
in_session "$bypath" clone -q m/tree m/b || fail "clone by the paths of a session"
in_session sh -c 'python3 listing.py m/tree >1; python3 listing.py m/a >2; python3 listing.py m/b >3'
[ "$(wc -l <1)" -gt 510 ] || fail "the listing has $(wc -l <1) lines"
cmp 1 2 || failed=1
cmp 1 3 || failed=1
same "names, bytes" "$(python3 -c 'import json, sys; d = json.loads(sys.argv[1]); print(d["names"] > 510, d["shared"] > 3500000, d["copied"])' "$json")" "True True 0"
# One block of counts for 2 MiB, one for each directory, a line or three for each name: nothing near 3.6 MB of contents.
[ $(($(used) - before)) -le 1 ] || fail "two clones take $(($(used) - before)) MiB"
"$bypath" check image >/dev/null || fail "check after clone"
in_session sh -c 'echo more >>m/a/f3000000; : >m/b/f4096; rm m/tree/sub/deep/n499; python3 listing.py m/tree >4
    tail -c 5 m/a/f3000000 | grep -q more && [ $(stat -c %s m/tree/f3000000) = 3000000 ] && [ $(stat -c %s m/outside) = 4096 ]' || fail "an edit shows elsewhere"

# 733 blocks of the large file, some 540 of small ones: two clones save twice what is shared, but for what was changed.
"$bypath" info --json image | python3 -c 'import json, sys
shared = json.load(sys.stdin)["shared"]
blocks, saved = shared["bytes"] // 4096, shared["saved"] // 4096
sys.exit(not (1250 < blocks < 1320 and 2 * blocks - 10 < saved < 2 * blocks) and f"{blocks} blocks are shared, which saves {saved}")' || failed=1
"$bypath" info image | grep -q '^shared  *5' || fail "info: $("$bypath" info image)"

# What is refused changes nothing.
refused() { # WORD ARGUMENTS…
    local word=$1 text
    shift
    text=$("$bypath" clone "$@" 2>&1) && fail "clone $* is not refused"
    case $text in *"$word"*) ;; *) fail "clone $*: $text" ;; esac
}
refused 'there already' "$I:/tree" "$I:/a"
refused 'into itself' "$I:/tree" "$I:/tree/sub/deep/x"
refused 'no such file' "$I:/none" "$I:/c"
refused 'no such file' "$I:/tree" "$I:/none/c"
refused 'not a directory' "$I:/tree" "$I:/outside/c"
refused 'in a directory' "$I:/tree" "$I:/"
refused 'no image' "$I:/tree" /tmp/nowhere
"$bypath" mkfs --size 16M other >/dev/null && refused 'another image' "$I:/tree" "$work/other:/c"
in_session sh -c 'mkdir m/locked && mkdir m/locked/d && touch m/locked/d/secret && chmod 600 m/locked/d/secret && mkdir m/theirs && chmod 777 m/theirs && chmod 755 m'
if [ "$(id -u)" = 0 ] && chmod 666 image && user test -w image; then
    text=$(user "$bypath" clone "$I:/locked" "$I:/theirs/c" 2>&1) && fail "a file that may not be read is cloned"
    case $text in *locked/d/secret*denied*) ;; *) fail "a file that may not be read: $text" ;; esac
    in_session rm m/a/null
    user "$bypath" clone -q "$I:/a" "$I:/theirs/c" 2>said || fail "clone of what is another's: $(cat said)"
    same "owner and rights of a clone of what is another's" "$(in_session stat -c '%u %a' m/theirs/c/f5000)" "65534 755"
    user "$bypath" drop -q "$I:/theirs/c" || fail "drop of shut directories"
fi
same "what is there" "$(entries)" "a b locked outside theirs tree"

# Killed at any moment: the clone is there or it is not, and what is left aside goes with the next one.
for i in $(seq 12); do
    "$bypath" clone -q "$I:/tree" "$I:/killed" &
    python3 -c "import time; time.sleep(0.0007 * $i)"
    kill -9 $! 2>/dev/null
    wait $! 2>/dev/null
    "$bypath" check image >/dev/null || fail "check after a killed clone"
    "$bypath" drop -q "$I:/killed" 2>/dev/null
done
"$bypath" clone -q "$I:/tree" "$I:/after" && "$bypath" drop -q "$I:/after" || fail "after killed clones"
same "what is there after killed clones" "$(entries)" "a b locked outside theirs tree"

# Two at once, beside each other and of the same name: one gets it, the other says so.
"$bypath" clone -q "$I:/tree" "$I:/c" 2>/dev/null &
"$bypath" clone -q "$I:/tree" "$I:/d" || fail "beside another one"
wait $! || fail "beside another one, the other"
"$bypath" clone -q "$I:/tree" "$I:/e" 2>/dev/null & first=$!
"$bypath" clone -q "$I:/tree" "$I:/e" 2>/dev/null; second=$?
wait $first; first=$?
[ $((first + second)) = 1 ] || fail "of two clones of one name $((2 - first - second)) are made"
same "what is there after two at once" "$(entries)" "a b c d e locked outside theirs tree"
in_session sh -c 'python3 listing.py m/e >5'
cmp 4 5 || failed=1

# By the paths of a kernel mount, which shows what was made and what is gone.
if [ -c /dev/fuse ]; then
    mkdir k && "$bypath" mount image k >/dev/null || fail "mount"
    python3 listing.py k/tree >6
    (cd k && ls -R >/dev/null && "$bypath" clone -q tree f) || fail "clone in a kernel mount"
    python3 listing.py k/f >7
    cmp 6 7 || failed=1
    echo x >>k/f/f1
    same "diff in a kernel mount" "$("$bypath" diff k/tree k/f)" "$(printf 'M\tf1\nM\tsub/same')"
    "$bypath" drop -q k/f || fail "drop in a kernel mount"
    [ ! -e k/f ] || fail "what was dropped is seen in a kernel mount"
    "$bypath" umount k || fail "umount"
else
    echo "skip clone_trees: no /dev/fuse here: clones in a kernel mount are NOT tested"
fi

# Full in the middle: nothing is left of it.
in_session sh -c 'cat /dev/zero >m/filler 2>/dev/null; truncate -s -16384 m/filler; df -B1 --output=avail m | tail -1 >room'
"$bypath" clone -q "$I:/tree" "$I:/full" 2>said && fail "a clone fits into $(cat room) bytes"
grep -q 'no space' said || fail "full: $(cat said)"
same "what is there after a full image" "$(entries)" "a b c d e filler locked outside theirs tree"
"$bypath" check image >/dev/null || fail "check after a full image"

# All goes: nothing is shared, and the space is what it was.
"$bypath" drop --json "$I:/a" "$I:/b" "$I:/c" "$I:/d" "$I:/e" "$I:/filler" >/dev/null || fail drop
same "what is shared when all is gone" "$("$bypath" dump image | grep -c 'is shared')" 0
"$bypath" info image | grep '^shared' && fail "something is shared when all is gone"
same "MiB in use when all is gone" "$(used)" "$before"
"$bypath" check image >/dev/null || fail "check after drop"
exit $failed
