#!/bin/bash
# own
# needs: python3
# Three programs change names in four watched directories at the same time, two of them on one name often. What the
# events say, one after the other, is what there is in the end; and no event is of a name that could not have it then.
set -u
. "$(dirname "$0")/own.sh"
failed=0
at=$PWD/m
mkdir m
"$bypath" mkfs i --size 64M >/dev/null || exit 1
cat >changer.py <<'P'
import os, random, sys
top, random = sys.argv[1], random.Random(int(sys.argv[2]))
for _ in range(4000):
    here, there = ('%s/d%d' % (top, random.randrange(4)) for _ in 'ab')
    a, b = ('n%d' % random.randrange(20) for _ in 'ab')
    a, b = here + '/' + a, there + '/' + b
    try:
        [lambda: os.close(os.open(a, os.O_CREAT | os.O_WRONLY)), lambda: os.unlink(a), lambda: os.mkdir(a), lambda: os.rmdir(a),
         lambda: os.rename(a, b), lambda: os.rename(b, a), lambda: os.link(a, b), lambda: os.chmod(a, 0o755)][random.randrange(8)]()
    except OSError as error:
        assert error.errno in (1, 2, 16, 17, 20, 21, 22, 39), error
P
cat >watcher.py <<'P'
import ctypes, os, select, struct, subprocess, sys
libc, top = ctypes.CDLL(None, use_errno=True), sys.argv[1]
fd = libc.inotify_init1(0)
known = {}
for name in ('%s/d%d' % (top, n) for n in range(4)):
    os.mkdir(name)
    known[libc.inotify_add_watch(fd, name.encode(), 0x3c0)] = (name, set())
changers = [subprocess.Popen([sys.executable, 'changer.py', top, str(n)]) for n in range(3)]
odd = events = 0
while any(changer.poll() is None for changer in changers) or select.select([fd], [], [], 0)[0]:
    if not select.select([fd], [], [], 0.01)[0]:
        continue
    data, at = os.read(fd, 65536), 0
    while at < len(data):
        wd, mask, pair, length = struct.unpack_from('iIII', data, at)
        name = data[at + 16:at + 16 + length].rstrip(b'\0').decode()
        at += 16 + length
        assert not mask & 0x4000
        names, events = known[wd][1], events + 1
        if mask & 0x180:
            odd += name in names and not mask & 0x80
            names.add(name)
        else:
            odd += name not in names
            names.discard(name)
print('changers', [changer.returncode for changer in changers], 'odd', odd, 'many', events > 1000)
print('wrong', [(name, names ^ set(os.listdir(name))) for name, names in known.values() if names != set(os.listdir(name))])
P
got=$("$bypath" run --no-fuse -m "i:$at" -- python3 watcher.py "$at" 2>&1)
same 'what was told' "$got" "changers [0, 0, 0] odd 0 many True
wrong []"
"$bypath" check i >check || { cat check; failed=1; }
exit $failed
