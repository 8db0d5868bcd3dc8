#!/bin/bash
# own
# seconds: 120
# Goal: what another program moves below moves in the session too, with whoever has it open: a log that is rotated, a directory
# that is renamed, moved into another, moved away and back; with changes that no round has written yet, and without.
# Method: one program writes by a descriptor, moves the file or its directory below, and goes on by the descriptor.
. "$(dirname "$0")/own.sh"
until_module
cat >work.py <<'P'
import os, sys, time
from until import until
at, low, moves, is_written = sys.argv[1], sys.argv[2], sys.argv[3].split(), sys.argv[4] == "written"
log = open(f"{at}/d/log", "a")
def write(first):
    for number in range(first, first + 50):
        log.write(f"line {number}\n")
    log.flush()
write(0)
if is_written:
    os.fsync(log.fileno())
count = 50
for move in moves:
    old, new = move.split(":")
    # Both directories are known to the session, and watched soon after.
    os.listdir(f"{at}/{os.path.dirname(old)}"), os.listdir(f"{at}/{os.path.dirname(new)}")
    time.sleep(0.5)
    if not is_written:
        # Until a round has made what is new here.
        until(lambda: os.path.exists(f"{low}/{old}"), f"{old} below")
    os.rename(f"{low}/{old}", f"{low}/{new}")
    until(lambda: os.path.exists(f"{at}/{new}") and not os.path.exists(f"{at}/{old}"), f"{new} instead of {old}")
    write(count)
    count += 50
    if os.fstat(log.fileno()).st_nlink != 1:
        sys.exit(f"after {move}: the open file has no name")
os.fsync(log.fileno())
P
moved() { # WHERE-THE-LOG-IS MOVE…
    local place=$1 count=$((50 * $#)) how
    shift
    for how in written unwritten; do
        rm -rf low at c.img && mkdir -p low/d low/x at
        timeout 60 "$bypath" run --no-fuse --mount "host:$PWD/low:$PWD/at,cache=$PWD/c.img:64M" -- python3 work.py "$PWD/at" "$PWD/low" "$*" $how >got 2>&1 || fail "$*, $how: $(cat got)"
        same "$*, $how" "$(cat "low/$place")" "$(seq -f 'line %g' 0 $((count - 1)))"
        same "$*, $how: files" "$(find low -type f)" "low/$place"
    done
}
# Of a file that nobody has read yet: open, with another mode that no round has written, and neither.
rm -rf low at c.img && mkdir -p low/d low/x at
timeout 60 "$bypath" run --no-fuse --mount "host:$PWD/low:$PWD/at,cache=$PWD/c.img:64M" -- python3 - "$PWD/at" "$PWD/low" >got 2>&1 <<'P' || fail "not read: $(cat got)"
import os, sys
from until import until
at, low = sys.argv[1:]
os.listdir(f"{at}/d"), os.listdir(f"{at}/x")
for number in range(12):
    name = f"f{number}"
    with open(f"{low}/d/{name}", "w") as file:
        file.write(name * 10000)
    until(lambda: os.path.exists(f"{at}/d/{name}"), f"d/{name}")
    # Changes beside it, so that a round is under way or about to be.
    for place in "d", "x":
        open(f"{at}/{place}/new{number}", "w").close()
    file = open(f"{at}/d/{name}") if number % 3 == 0 else None
    if number % 3 == 1:
        os.chmod(f"{at}/d/{name}", 0o600)
    os.rename(f"{low}/d/{name}", f"{low}/x/{name}")
    until(lambda: os.path.exists(f"{at}/x/{name}") and not os.path.exists(f"{at}/d/{name}"), f"x/{name}")
    for opened in filter(None, [file, open(f"{at}/x/{name}")]):
        if opened.read() != name * 10000:
            sys.exit(f"{name}: not what it was")
    if number % 3 == 1 and os.stat(f"{at}/x/{name}").st_mode & 0o777 != 0o600:
        sys.exit(f"{name}: its mode")
P
same 'unread: below' "$(cd low && stat -c '%a %n' x/f1 x/f4 d/f* 2>/dev/null)" $'600 x/f1\n600 x/f4'
# A directory that has moved has the times that it has below, whether a round was under way or not.
rm -rf low at c.img && mkdir -p low/d/in low/x at && echo kept >low/d/in/f
timeout 60 "$bypath" run --no-fuse --mount "host:$PWD/low:$PWD/at,cache=$PWD/c.img:64M" -- python3 - "$PWD/at" "$PWD/low" >got 2>&1 <<'P' || fail "times: $(cat got)"
import os, sys, time
from until import until
at, low = sys.argv[1:]
for place in "d", "d/in", "x":
    os.listdir(f"{at}/{place}")
time.sleep(0.5)
places = ["d", "x/d", "x/e", "d", "f", "d"]
times = lambda path: (os.stat(path).st_mtime_ns, os.stat(path).st_ctime_ns)
for number, (old, new) in enumerate(zip(places, places[1:])):
    if number % 2:
        open(f"{at}/{old}/in/new{number}", "w").close()
        until(lambda: os.path.exists(f"{low}/{old}/in/new{number}"), f"new{number} below")
    os.rename(f"{low}/{old}", f"{low}/{new}")
    for path in new, f"{new}/in", f"{new}/in/f":
        until(lambda: os.path.exists(f"{at}/{path}") and times(f"{at}/{path}") == times(f"{low}/{path}"), f"the times of {path}")
P
moved d/log.1 d/log:d/log.1
moved e/log d:e
moved x/d/log d:x/d
moved d/log d:e e:d
moved x/log.2 d/log:d/log.1 d/log.1:x/log.2
exit $failed
