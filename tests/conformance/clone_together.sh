#!/bin/bash
# own
# needs: python3
# seconds: 120
# `bypath clone` is two threads' work where a tree is large enough. Whoever makes what: the clone is as its original in names, types,
# modes, times, contents and in which names are one file's, also where these lie in directories that different ones fill, which
# may not be written to; and where one can't go on, or is stopped, nothing is left.
set -u
. "$(dirname "$0")/own.sh"
failed=0
an_image 256M
cat >make.py <<'P'
import os, random
os.chdir("m")
rng = random.Random(5)
for d in range(60):
    path = f"main/p{d % 6}/d{d}" + "/deep" * (d % 4)
    os.makedirs(path)
    for f in range(40):
        with open(f"{path}/f{f}", "wb") as file:
            file.write(rng.randbytes(rng.choice((0, 1, 100, 5000, 20000))))
    os.symlink("f1", path + "/link")
    os.mkfifo(path + "/fifo")
    if d > 2:
        os.link("main/p0/d0/f1", path + "/everywhere")
        os.link(before + "/f2", path + "/above")
        os.link(path + "/f3", path + "/beside")
    before = path
    os.utime(path + "/f1", ns=(10**18 + d, 10**18 + 2 * d))
for d in range(0, 60, 7):
    path = f"main/p{d % 6}/d{d}" + "/deep" * (d % 4)
    os.utime(path, ns=(10**17, 10**17 + d))
    os.chmod(path, 0o555)
P
cat >tell.py <<'P'
import hashlib, os, sys
files = {}
for where, dirs, names in sorted(os.walk(sys.argv[1])):
    dirs.sort()
    for name in ["."] + sorted(names) + [d for d in dirs if os.path.islink(where + "/" + d)]:
        path = os.path.join(where, name)
        s = os.lstat(path)
        short = os.path.relpath(path, sys.argv[1])
        first = files.setdefault(s.st_ino, short) if name != "." else ""
        data = open(path, "rb").read() if os.path.isfile(path) and not os.path.islink(path) else b""
        print(short, oct(s.st_mode), s.st_nlink, s.st_uid, s.st_size if name != "." else "", s.st_mtime_ns, first, hashlib.md5(data).hexdigest())
P
in_session python3 make.py && in_session chown -hR 65534:65534 m/main || fail fill
in_session mkdir -m 777 m/clones && chmod 666 image && chmod 755 . || fail rights
in_session python3 tell.py m/main >wanted || fail tell
grep -c everywhere wanted | grep -qx 57 || fail 'names of one file'
names=$(($(wc -l <wanted)))
root() { "$@"; }
for who in root user; do
    for i in 1 2; do
        $who "$bypath" clone --json "$I:/main" "$I:/clones/$who$i" >said || fail clone
        same "names ($who $i)" "$(python3 -c 'import json; print(json.load(open("said"))["names"])')" "$names"
        in_session python3 tell.py m/clones/$who$i >got
        cmp -s wanted got || { echo "clone $i of $who:" && diff wanted got | head -5 && failed=1; }
    done
done
# One of the two can't read a directory, wherever it comes.
for d in 5 59; do
    at=$(sed -n "s,^\\(p[0-9]/d$d\\)[/ ].*,\\1,p" wanted | head -1)
    mode=$(in_session stat -c %a "m/main/$at")
    in_session chmod 0 "m/main/$at"
    user "$bypath" clone -q "$I:/main" "$I:/clones/none" 2>said && fail 'a directory that may not be read'
    grep -qi "main/$at: permission denied" said || { cat said && failed=1; }
    in_session chmod "$mode" "m/main/$at"
done
left() { "$bypath" ls -a "$I:/clones" | tr '\n' ' '; }
same 'what is left' "$(left)" "root1 root2 user1 user2 "
for i in 1 2 3 4; do
    "$bypath" clone -q "$I:/main" "$I:/clones/stopped" 2>/dev/null &
    sleep 0.00$i
    kill -INT $! 2>/dev/null
    wait $! && "$bypath" drop -q "$I:/clones/stopped"
done
same 'what is left of those stopped' "$(left)" "root1 root2 user1 user2 "
"$bypath" check image >checked || { cat checked && failed=1; }
exit $failed
