# `bypath info` counts calls by the way that they came: each kind of program moves its own count.
command -v python3 >/dev/null || { echo "skip calls: no python3 here"; exit 0; }
calls() { "$bypath" info --json "$image" | python3 -c 'import json, sys; c = json.load(sys.stdin)["calls"]; print(c["symbols"], c["patched"], c["mount"], c["passed"])'; }
# more COMMAND…: sets $symbols, $patched, $mount and $passed to what the command adds.
more() {
    local before after
    before=($(calls))
    "$@" || fail "$1: exit $?"
    after=($(calls))
    symbols=$((after[0] - before[0])) patched=$((after[1] - before[1])) mount=$((after[2] - before[2])) passed=$((after[3] - before[3]))
}
# told WHAT: whether the expression that follows holds
told() { if (($2)); then ok "$1"; else fail "$1: not $2; $symbols symbols, $patched patched, $mount mount, $passed passed"; fi; }
run() { "$bypath" run --mount "$image:$mnt" -- "$@"; }
same 'nothing at first' "$("$bypath" info "$image" | sed -n 's/^calls *//p')" 'none yet'
"$bypath" mount "$image" "$mnt" || exit 1
look="import os
file = os.open('$mnt/f', os.O_RDWR)
for _ in range(5000): os.pwrite(file, b'x', 0)"
: >"$mnt/f"
more python3 -S -c "$look"
told 'programs without the library' 'mount >= 5000 && passed == 0 && symbols == 0 && patched == 0'
more run python3 -S -c "$look"
told 'programs with it' 'symbols >= 5000 && symbols < 6000 && patched == 0 && passed < 100'
more run python3 -S -c "
import threading, os
def look():
    for _ in range(4096): os.stat('$mnt/f')
threads = [threading.Thread(target=look) for _ in range(3)]
[one.start() for one in threads], [one.join() for one in threads]
if os.fork() == 0:
    [os.stat('$mnt/f') for _ in range(1000)]
    os._exit(0)
os.wait()
os.execvp('ls', ['ls', '-d', '$mnt'])" >/dev/null
told 'threads, a child, the program after exec' 'symbols >= 13288 && symbols < 15000'
more run python3 -S -c "
import ctypes, os
context = ctypes.c_ulong()
assert ctypes.CDLL(None).syscall(ctypes.c_long($(echo '#include <sys/syscall.h>
SYS_io_setup' | ${CC:-cc} -E -P - | tail -n 1)), ctypes.c_long(1), ctypes.byref(context)) == 0
file = os.open('$mnt/f', os.O_RDWR)
for _ in range(200): os.pwrite(file, b'x', 0)"
told 'with a descriptor that is the kernel'"'"'s' 'passed >= 200 && mount >= passed && symbols < 200'
mkdir "$mnt/zones"
cp /usr/share/zoneinfo/UTC "$mnt/zones/here" 2>/dev/null && if more env BYPATH_WAYS=patched "$bypath" run --mount "$image:$mnt" -- env "TZ=:$mnt/zones/here" date >"$work/said" 2>&1; ! grep -q bypath "$work/said"; then
    told 'inside libc, on the patched way' 'patched > 0'
else
    echo "skip calls: no zone, or libc is not patched here"
fi
"$bypath" umount "$mnt"
