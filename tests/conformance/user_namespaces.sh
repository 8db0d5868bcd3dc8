# In a user namespace owners are shown and given by its map, and its root has a right over those alone that it maps.
# ways: short both patched kernel host cached fuse
# mode: 666
# needs: unshare setpriv
umask 022
in_ns() { unshare --user "$@"; }
chmod 755 .
echo x >of-1000 && chown 1000:1000 of-1000 && echo y >of-root && mkdir dir-of-1000 && chown 1000 dir-of-1000
echo z >mixed && chown 0:1000 mixed && chmod 640 mixed && ln -s of-1000 link && chown -h 1000:0 link
mkdir -m 1777 sticky && echo t >sticky/theirs && chown 1000 sticky/theirs
echo '--- root of a namespace that maps root alone'
in_ns -r stat -c '%n %u %g' of-1000 of-root dir-of-1000 mixed link
in_ns -r bash -c '
    try() { "$@" 2>/dev/null; echo "$* $?"; }
    id -u; id -g
    try chown 5:5 of-root; try chown 0:0 of-root; try chown 0:0 of-1000; try chown -h 0:0 link; try chown 1 of-root
    touch new; mkdir new-dir; ln -s new new-link; mkfifo fifo; stat -c "%n %u %g %A" new new-dir new-link fifo
    chmod 4755 new; stat -c "%a" new
    cat of-1000; try bash -c "echo w >>of-1000"; try cat mixed; chmod 0 of-root; cat of-root
    try chmod 600 of-1000; try touch dir-of-1000/f; try rm sticky/theirs; try touch -d 2001-01-01 of-1000
    try /usr/bin/python3 -c "import os; os.setxattr(\"of-1000\", \"user.x\", b\"1\")"; try /usr/bin/python3 -c "import os; os.setxattr(\"of-root\", \"user.x\", b\"1\")"
    try /usr/bin/python3 -c "import os; os.setxattr(\"of-root\", \"trusted.x\", b\"1\")"
    try mknod device c 1 5; try chgrp 0 mixed; try test -r mixed; try test -w of-1000; try mv sticky/theirs moved
    find . -uid 0 | sort | head -20; find . -nouser | sort; ls --time-style=+ -nd of-1000 of-root
    /usr/bin/python3 -c "
import os
fd = os.open(\"of-1000\", os.O_RDONLY); print(os.fstat(fd).st_uid, os.stat(fd).st_gid)
for entry in sorted(os.scandir(\".\"), key=lambda entry: entry.name): print(entry.name, entry.stat(follow_symlinks=False).st_uid)"'
stat -c '%n %u %g %a' of-root new new-dir new-link
echo '--- nobody is mapped'
in_ns bash -c 'id -u; stat -c "%n %u %g" of-1000 of-root; cat of-1000; chmod 600 of-root; echo "$?"; echo w >>of-root; echo "$?"; touch unmapped; stat -c "%u %g" unmapped; (stat -c %U unmapped; touch grandchild); chown 0 unmapped 2>/dev/null; echo "$?"'
stat -c '%n %u %g' unmapped grandchild
echo '--- another user of a namespace'
in_ns --map-user=7 --map-group=8 bash -c 'id -u; stat -c "%n %u %g" of-1000 of-root; touch seventh; stat -c "%u %g" seventh; chown 7:8 seventh; echo "$?"; chown 0:0 seventh 2>/dev/null; echo "$?"'
stat -c '%n %u %g' seventh
echo '--- a process that makes its map itself'
/usr/bin/python3 - <<'P'
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def show(when): print(when, *[(os.stat(name).st_uid, os.stat(name).st_gid) for name in ("of-1000", "of-root")])
show("before")
os.close(os.open("made-before", os.O_CREAT | os.O_WRONLY))
if libc.unshare(0x10000000): raise OSError(ctypes.get_errno(), "unshare")
show("without a map")
os.close(os.open("made-without", os.O_CREAT | os.O_WRONLY))
for name, text in (("setgroups", "deny"), ("uid_map", "3 0 1"), ("gid_map", "4 0 1")):
    with open("/proc/self/" + name, "w") as f: f.write(text)
show("with one")
os.close(os.open("made-with", os.O_CREAT | os.O_WRONLY))
P
stat -c '%n %u %g' made-*
