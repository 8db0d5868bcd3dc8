#!/bin/bash
# own
# seconds: 120
# A program that can't use the image of its session gets an error for every path of the mount, whatever the cause: never
# a file of what lies underneath. One line a session says why. A program in another root directory goes on undisturbed.
set -u
. "$(dirname "$0")/own.sh"
fail() { echo "$*" && failed=1; }
at=$PWD/m
mkdir m
# Each tries all kinds of calls; only errors may come, all the same one. Files of the kernel's stay usable.
cat >tries <<'S'
at=$1
for call in "cat $at/precious" "stat $at" "ls $at" "rm $at/precious" "mv $at/precious /tmp/x" "mkdir $at/d" "touch $at/n" "ln $at/precious $at/l" \
    "ln -s x $at/s" "rmdir $at" "readlink -v $at/precious" "truncate -s 0 $at/precious" "chmod 777 $at/precious" "cp /etc/hostname $at/c" \
    "env -C $at true" "stat -f $at"; do
    $call >/dev/null && echo "$call: done"
done 2>&1 | sed "s/.*: //" | sort | uniq -c | sed 's/^ *//'
(echo >$at/shell) 2>/dev/null && echo 'the shell writes'
cat /etc/hostname >/dev/null || echo 'no file of the kernel either'
S
calls=16
# A session without the cover over its mount point, which then gets a file that must stay as it is.
session() { # CAUSE: a script that makes it, and runs tries
    rm -rf i* m; mkdir m; rm -f ready go
    "$bypath" mkfs i --size 64M >/dev/null && chmod "${mode:-600}" i || exit 1
    setpriv --bounding-set -sys_admin "$bypath" run --no-fuse -m "i:$at" -- bash -c "echo in >$at/precious; echo >ready; until [ -e go ]; do sleep 0.01; done; $1" >out 2>err &
    until [ -e ready ]; do sleep 0.01; done
    echo mine >m/precious
    echo >go
    wait $!
    same "$1: underneath" "$(ls -A m):$(cat m/precious)" precious:mine
    [ ! -e /tmp/x ] || { rm -f /tmp/x; fail "$1: moved out"; }
}
refused() { # CAUSE TEXT LINE
    session "$1"
    same "$1" "$(cat out)" "$calls $2"
    same "$1: lines" "$(grep -c "^bypath: .*$3.*every path there is refused" err)$(grep -c '^bypath: ' err)" 11
}
# Words of the script, not expanded here.
# shellcheck disable=SC2016
{
    refused "mv i i.moved; sh tries $at" 'Stale file handle' 'moved, removed or replaced'
    refused "rm i; sh tries $at" 'Stale file handle' 'moved, removed or replaced'
    refused "mv i i.moved; '$bypath' mkfs i --size 64M >/dev/null; sh tries $at" 'Stale file handle' 'moved, removed or replaced'
    refused "setpriv --reuid 65534 --clear-groups sh tries $at" 'Permission denied' 'not writable'
    refused "rm -rf /dev/shm/bypath-[0-9a-f]*; sh tries $at" 'Input/output error' 'other processes use it'
}
# All 1,024 places taken.
cat >holders.py <<'P'
import os, signal, sys
# One that has a place, and needs another for the program that it executes.
first, go = os.pipe()
tries = os.fork()
if tries == 0:
    os.read(first, 1)
    os.execvp("sh", ["sh", "tries", sys.argv[1]])
children = []
try:
    while len(children) < 1100:
        child = os.fork()
        if child == 0:
            signal.pause()
        children.append(child)
except OSError:
    pass
os.write(go, b"1")
os.waitpid(tries, 0)
for child in children:
    os.kill(child, signal.SIGKILL)
P
refused "python3 holders.py $at" 'Input/output error' '1024 processes use it'
# Too few descriptors: for a pipe too.
session "ulimit -n 4; sh -c 'cat $at/precious; ls $at; echo x >$at/n'"
same 'few descriptors' "$(grep -c 'Input/output error\|cannot create' err)" 3
# A filter that lets it open files to be read only, as man-db's; and one that lets it lock nothing, which does no harm.
cat >filter.c <<'C'
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int c, char **v) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_flock, !strcmp(v[1], "lock") ? 3 : 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, strcmp(v[1], "open") ? 0 : O_ACCMODE, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {7, rules};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 1;
    execvp(v[2], v + 2);
    return 1;
}
C
cc -O1 -w -o filter filter.c || exit 1
session "./filter open cat $at/precious"
same 'a filter' "$(sed 's/.*: //' err)" $'ENOSYS; every path there is refused (EIO)\nInput/output error'
session "./filter lock sh -c 'cat $at/precious; echo more >$at/n; cat $at/n'"
same 'one that does no harm' "$(cat out err)" $'in\nmore'
# A sandbox covers the image's directory, as one with its own /dev does: said by that name.
if unshare -m true 2>/dev/null; then
    mkdir -p far && rm -rf m && mkdir m
    "$bypath" mkfs far/i --size 64M >/dev/null && "$bypath" run --no-fuse -m "far/i:$at" -- unshare -m bash -c "mount -t tmpfs none far && cat $at/precious" >out 2>err
    same 'a sandbox' "$(cat out):$(grep -c 'out of reach.*covers it.*every path there is refused' err)" :1
    rm far/i
fi
# Another root directory: the mount does not belong there.
mkdir -p root/lib root/bin root"$at" && echo its >root"$at"/own
copies() { for file; do mkdir -p "root${file%/*}" && cp "$file" "root$file"; done; }
copies "$(command -v cat)" "$(command -v sh)" $(ldd "$(command -v cat)" "$(command -v sh)" "${bypath%/*}/libbypath_preload.so" | grep -o '/[^ :]*' | sort -u | grep -v '^/.*:$') "${bypath%/*}/libbypath_preload.so"
session "chroot root sh -c 'cat $at/own; echo more >$at/other; cat $at/other'"
same 'another root' "$(cat out)" $'its\nmore'
same 'and says nothing' "$(grep -c bypath: err)" 0
exit $failed
