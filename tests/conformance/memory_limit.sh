#!/bin/bash
# A container's memory limit: an image in memory gets no more of it than is left, and says so; nobody is killed.
# own
. "$(dirname "$0")/own.sh"
groups=/sys/fs/cgroup/memory limit=memory.limit_in_bytes
if [ ! -d $groups ]; then groups=/sys/fs/cgroup limit=memory.max; fi
group=$groups/bypath-test-$$
if ! mkdir $group 2>/dev/null || ! echo $((96 << 20)) >$group/$limit 2>/dev/null; then
    rmdir $group 2>/dev/null
    echo "skip memory_limit: no control group with a memory limit can be made here: NOT tested"
    exit 0
fi
trap 'for pid in $(cat $group/cgroup.procs); do kill -9 $pid; done; sleep 0.1; rmdir $group' EXIT
in_group() { bash -c 'echo $$ >'$group'/cgroup.procs && exec "$@"' bash "$@"; }
image=/dev/shm/limited-$$
in_group "$bypath" mkfs $image --size 1G >said 2>&1 || { cat said; exit 1; }
grep -q 'in memory, of which this container or job may use 96 MiB' said || { echo "not said: $(cat said)"; exit 1; }
in_group "$bypath" run --no-fuse --mount "$image:$PWD/m" -- sh -c '
    echo before >m/kept
    dd if=/dev/zero of=m/large bs=1M count=400 2>said; echo "dd $?"
    cat m/kept; rm m/large; dd if=/dev/zero of=m/again bs=1M count=20 2>/dev/null; echo "again $?"; stat -c %s m/again' >got 2>err
code=$?
rm -f $image
[ $code = 0 ] && [ "$(cat got)" = "dd 1
before
again 0
20971520" ] && grep -q 'No space left on device' said || { echo "exit code $code: $(cat got err said)"; exit 1; }
