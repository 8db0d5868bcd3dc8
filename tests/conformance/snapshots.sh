#!/bin/bash
# own
# needs: python3 setfattr
# seconds: 30
# `bypath snap` keeps a directory as it is: nobody changes anything below the snapshot's name, root neither, by any call, from
# inside a session or through a kernel mount; all can be read, cloned back and compared, and `bypath drop` gives the space back.
set -u
. "$(dirname "$0")/own.sh"
failed=0
an_image 64M
used() { "$bypath" info --json "$I" | python3 -c 'import json, sys; print(json.load(sys.stdin)["used"])'; }
in_session bash -c 'cd m && mkdir -p main/sub/deep && head -c 200000 /dev/urandom >main/large && echo small >main/sub/small &&
    ln main/sub/small main/second && ln -s large main/link && mkfifo main/fifo && mkdir main/sub/empty && chmod 555 main/sub/deep &&
    truncate -s 1M main/holes && for i in $(seq 50); do echo $i >main/sub/n$i; done' || fail fill
[ "$(id -u)" != 0 ] || in_session setfattr -n user.a -v b m/main/large || fail setfattr
in_session sh -c 'cp -a m/main plain && rm -rf plain/.snap' || fail cp
before=$(used)
"$bypath" snap -q "$I:/main" one || fail snap
in_session "$bypath" snap -q m/main two || fail 'snap in a session'
"$bypath" snap -q "$I:/main" one 2>said && fail 'snap twice'
grep -q 'there already' said || { cat said && failed=1; }
for bad in '' . .. a/b; do "$bypath" snap -q "$I:/main" "$bad" 2>/dev/null && fail "a name that is none: '$bad'"; done
"$bypath" snap -q "$I:/main/large" x 2>said && fail 'a file'

cat >change.py <<'P'
import errno, fcntl, os, sys
os.chdir(sys.argv[1])
failed, FICLONE = 0, 0x40049409
def check(ok, what):
    global failed
    if not ok:
        failed += 1
        print("wrong:", what)
def refused(what, call):
    try:
        call()
        got = 0
    except OSError as error:
        got = error.errno
    check(got == errno.EROFS, "%s: %s" % (what, errno.errorcode.get(got, got)))
open("main/outside", "w").close()
s = "main/.snap/one/"
O = os.O_RDWR
for name in ("large", "sub/small", "second", "holes", "sub/n7"):
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC, os.O_WRONLY | os.O_APPEND, os.O_RDWR | os.O_CREAT):
        refused("open %s %x" % (name, flags), lambda: os.open(s + name, flags))
    refused("truncate", lambda: os.truncate(s + name, 1))
    refused("chmod", lambda: os.chmod(s + name, 0o600))
    refused("utime", lambda: os.utime(s + name))
    refused("utime to", lambda: os.utime(s + name, (1, 1)))
    refused("unlink", lambda: os.unlink(s + name))
    refused("rename", lambda: os.rename(s + name, s + "other"))
    refused("rename out", lambda: os.rename(s + name, "main/other"))
    refused("rename in", lambda: os.rename("main/outside", s + name))
    refused("link out", lambda: os.link(s + name, "main/other"))
    refused("link in", lambda: os.link("main/outside", s + "sub/new"))
    refused("setxattr", lambda: os.setxattr(s + name, "user.x", b"y"))
for name in ("new", "sub/new", "sub/deep/new", "sub/empty/new"):
    refused("creat", lambda: os.open(s + name, os.O_CREAT | os.O_WRONLY))
    refused("creat to read", lambda: os.open(s + name, os.O_CREAT | os.O_RDONLY))
    refused("mkdir", lambda: os.mkdir(s + name))
    refused("symlink", lambda: os.symlink("x", s + name))
    refused("mkfifo", lambda: os.mkfifo(s + name))
    refused("mkdir in", lambda: os.rename("main/outside", s + name))
for name in ("sub/empty", "sub", "sub/deep"):
    refused("rmdir " + name, lambda: os.rmdir(s + name) if name != "sub" else os.rename(s + name, "main/other"))
    refused("chmod " + name, lambda: os.chmod(s + name, 0o700))
    refused("O_TMPFILE", lambda: os.open(s + name, os.O_TMPFILE | os.O_RDWR))
    refused("setxattr", lambda: os.setxattr(s + name, "user.x", b"y"))
refused("chmod of the top", lambda: os.chmod(s, 0o700))
refused("unlink of a link", lambda: os.unlink(s + "link"))
refused("times of a link", lambda: os.utime(s + "link", follow_symlinks=False))
refused("unlink of a fifo", lambda: os.unlink(s + "fifo"))
# The kernel answers that for its mount by the modes.
check(sys.argv[2] == "kernel" or not os.access(s + "large", os.W_OK) and not os.access(s + "sub", os.W_OK) and os.access(s + "large", os.R_OK), "access")
if os.getuid() == 0:
    refused("chown", lambda: os.chown(s + "large", 1, 1))
    refused("removexattr", lambda: os.removexattr(s + "large", "user.a"))
# It is read, also by who opens and maps it; and what has its data is changed as ever.
import mmap
with open(s + "large", "rb") as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as kept, open("main/large", "r+b") as own:
    before = kept[:200000]
    own.write(b"changed")
    check(kept[:200000] == before and f.read() == before, "what is read of it")
    try:
        mmap.mmap(f.fileno(), 0)
        check(False, "a mapping to store into")
    except PermissionError:
        pass
with open("main/copy", "wb") as copy, open(s + "large", "rb") as f:
    if sys.argv[2] == "session":
        fcntl.ioctl(copy, FICLONE, f.fileno())
    else:
        copy.write(f.read())
os.unlink("main/copy")
os.unlink("main/outside")
sys.exit(failed != 0)
P
in_session python3 change.py m session || failed=1
"$bypath" check image >checked || { cat checked && failed=1; }
in_session diff -r -x fifo -x .snap plain m/main/.snap/one || failed=1
in_session sh -c 'rm -rf m/main/.snap/two 2>/dev/null; diff -r -x fifo -x .snap plain m/main/.snap/two' || { echo 'rm -rf changes a snapshot' && failed=1; }
# By another session after a start, when nothing of it is in memory; as a user whose it is.
in_session sh -c '! echo x >m/main/.snap/one/sub/small && ! rm m/main/.snap/one/sub/n1' 2>/dev/null || { echo 'after a start it can be changed' && failed=1; }

# Back, and onwards: what is cloned can be changed; snapshots are no part of a clone, or of what changes.
same 'what has changed' "$("$bypath" diff "$I:/main/.snap/one" "$I:/main")" "M	large"
"$bypath" clone -q "$I:/main/.snap/one" "$I:/back" && "$bypath" clone -q "$I:/main" "$I:/clone" || failed=1
in_session sh -c 'echo more >>m/back/sub/small && rm m/back/large && ls -A m/clone/.snap' >said || failed=1
same 'snapshots in a clone' "$(cat said)" .gitignore
in_session diff -r -x fifo -x .snap plain m/main/.snap/one || failed=1
in_session mv m/main/.snap/two m/main/.snap/three || { echo 'a snapshot has no other name' && failed=1; }
if [ "$(id -u)" = 0 ] && [ -e /dev/fuse ]; then
    mkdir k && "$bypath" mount image k && python3 change.py k kernel || failed=1
    diff -r -x fifo -x .snap plain k/main/.snap/one || failed=1
    "$bypath" umount k || failed=1
fi

# Git does not add a repository once more with each snapshot.
if command -v git >/dev/null; then
    in_session sh -c "git init -q m/repo && echo 1 >m/repo/a && '$bypath' snap -q m/repo one && cd m/repo && git status --short" >said || fail git
    same 'what git would add' "$(cat said)" '?? a'
    "$bypath" drop -q "$I:/repo" || fail 'drop of the repository'
fi

# Gone, and the space with it.
"$bypath" drop -q "$I:/main/.snap/one" "$I:/main/.snap/three" "$I:/back" "$I:/clone" || failed=1
same 'snapshots' "$("$bypath" ls -A "$I:/main/.snap" 2>/dev/null || "$bypath" ls "$I:/main/.snap")" ''
# What is kept of the file that was changed would be more.
[ "$(used)" -le $((before + 131072)) ] || { echo "$(used) bytes in use, $before before the snapshots" && failed=1; }
same 'what is shared' "$("$bypath" dump image | grep -c 'is shared')" 0
"$bypath" snap -q "$I:/main" last && "$bypath" drop -q "$I:/main" || failed=1
same 'files' "$("$bypath" ls "$I:/")" ''
"$bypath" check image >checked || { cat checked && failed=1; }
exit $failed
