#!/bin/bash
# own
# seconds: 90
# A process that is stopped in the middle of a call (SIGSTOP, Ctrl-Z, a debugger) keeps nobody from another file or name:
# not while the image grows, not through the kernel mount, whose threads all wait for such files; who waits for the
# same file can be killed, also by the mount; `bypath info` names who is stopped.
set -u
cat >stopped.c <<'C'
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
// grow FILE: longer and longer. place FILE: the same 8 MiB again and again. append FILE: a line.
int main(int count, char **args) {
    int fd = open(args[2], O_RDWR | O_CREAT | (args[1][0] == 'a' ? O_APPEND : 0), 0644), place = args[1][0] == 'p';
    size_t len = place ? 8 << 20 : 1 << 20;
    char *piece = malloc(len);
    if (fd < 0 || count != 3) return 2;
    if (args[1][0] == 'a') return write(fd, "line\n", 5) != 5;
    memset(piece, 'x', len);
    for (long at = 0; at < 2000; at++)
        if (pwrite(fd, piece, len, place ? 0 : at * (long)len) < 0) return 1;
    return 0;
}
C
cc -O1 -o moving stopped.c && cc -O1 -static -o static stopped.c || exit 1
here=$PWD
mkdir m

cat >growing <<'S'
# A fresh image grows, in one process that is stopped; another makes a name elsewhere, and removes the file.
for round in 1 2 3 4; do
    "$1/moving" grow big &
    sleep ".0$((round + 3))"
    kill -STOP $!
    timeout 5 touch "o/new$round" || { echo "round $round: touch elsewhere: $?"; failed=1; }
    timeout 5 sh -c 'mkdir o/d && echo x >o/d/f && rm -r o/d' || { echo "round $round: elsewhere: $?"; failed=1; }
    kill -KILL $!
    wait $! 2>/dev/null
    rm -f big
done
exit ${failed:-0}
S
"$bypath" mkfs i --size 2G >/dev/null || exit 1
"$bypath" run --no-fuse -m "i:$here/m" -- bash -c 'cd m && mkdir o && . ../growing' bash "$here" 2>&1 || failed=1

cat >waiting <<'S'
# Eight are stopped, most of them while they write in place; eight static programs want their files.
cd "$1/m" && mkdir o
for k in 1 2 3 4 5 6 7 8; do
    "$1/moving" place big$k &
    stopped="${stopped:-} $!"
    sleep .2
    kill -STOP $!
    "$1/static" append big$k &
    waiting="${waiting:-} $!"
done
sleep 1
timeout 5 "$1/static" append o/new || { echo "a file elsewhere: $?"; failed=1; }
timeout 5 ls -l o >/dev/null || { echo "a listing elsewhere: $?"; failed=1; }
left=
for pid in $waiting; do [ -d /proc/$pid/task ] && ! grep -q '^State:.Z' /proc/$pid/status && left="$left $pid"; done
# Luck has it that some were stopped between two writes.
[ -n "$left" ] || echo 'nobody had to wait' >&2
[ -z "$left" ] || timeout 5 "$2" info ../j | grep -q '^stopped .*(moving)' || { echo 'info names nobody'; failed=1; }
[ -z "$left" ] || kill -KILL $left
for turn in $(seq 100); do
    alive=
    for pid in $left; do grep -qs '^State:.[^Z]' /proc/$pid/status && alive="$alive $pid"; done
    [ -n "$alive" ] || break
    sleep .1
done
[ -z "$alive" ] || { echo "killed, and still there:$alive"; failed=1; }
kill -KILL $stopped
wait 2>/dev/null
exit ${failed:-0}
S
"$bypath" mkfs j --size 1G >/dev/null || exit 1
if [ -c /dev/fuse ]; then
    "$bypath" run -m "j:$here/m" -- bash waiting "$here" "$bypath" 2>said || { cat said; failed=1; }
    grep -v Killed said
    "$bypath" check j | grep -q clean || { "$bypath" check j; failed=1; }
else
    echo 'no /dev/fuse: the kernel mount is NOT tested'
fi
"$bypath" check i | grep -q clean || { "$bypath" check i; failed=1; }
exit ${failed:-0}
