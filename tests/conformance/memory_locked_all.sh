#!/bin/bash
# mlockall, and a core dump, in a program with a large image: neither image nor what its users share is filled.
# own
set -eu
S=$PWD
"$BYPATH" mkfs "$S/i.img" --size 1G >/dev/null
mkdir "$S/m"
taken() { du -k "$S/i.img" /dev/shm/bypath-* 2>/dev/null | awk '{ all += $1 } END { print all }'; }
before=$(taken)
"$BYPATH" run --no-fuse -m "$S/i.img:$S/m" -- python3 - "$S/m" <<'X'
import ctypes, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
with open(sys.argv[1] + "/f", "w") as f:
    f.write("x")
assert libc.mlockall(3) == 0, os.strerror(ctypes.get_errno())
with open(sys.argv[1] + "/g", "w") as f:
    f.write("y")
sizes = dict(line.split(":") for line in open("/proc/self/status"))
assert int(sizes["VmLck"].split()[0]) < 300_000, sizes["VmLck"]
# Whoever wants mapped files in dumps gets the program's own, and not what it does not know of.
own = {}
for line in open("/proc/self/smaps"):
    if "i.img" in line or "/bypath-" in line:
        name = line
    elif not line[0].isupper():
        name = ""
    elif line.startswith("VmFlags") and name:
        own[name] = line.split()[1:]
assert len(own) >= 2 and all("dd" in flags for flags in own.values()), own
X
after=$(taken)
if [ $((after - before)) -gt 20000 ]; then
    echo "$before KiB before, $after KiB after"
    exit 1
fi
