# What the cases of the kind `own` share: to be sourced first, in the empty working directory that run.sh gives them.
tests=${tests:-$(cd "$(dirname "$0")/.." && pwd)}
work=$PWD
. "$tests/common.sh"

# fail WHAT: says so and ends the case.
fail() {
    echo "$*"
    exit 1
}
# same WHAT GOT WANTED: the case goes on, and ends with $failed.
same() {
    [ "$2" = "$3" ] || { echo "$1: '$2', not '$3'" && failed=1; }
}
# an_image SIZE: ./image, also $I, and ./m, where in_session COMMAND… sees it.
an_image() {
    I=$work/image
    "$bypath" mkfs --size "$1" image >/dev/null || fail mkfs
    mkdir m
}
in_session() { "$bypath" run --no-fuse --mount "image:$work/m" -- "$@"; }
# user COMMAND…: as one of no group.
user() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }

# until_module: makes ./until.py, whose until(CONDITION, WHAT) waits for something, and ends the program if it never comes.
until_module() {
    cat >until.py <<'P'
import sys, time
def until(condition, what):
    end = time.monotonic() + 20
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"never: {what}")
        time.sleep(0.005)
P
}

# past_program: makes ./past, whose system calls pass the library by (their numbers are not found in its text): `past make|append|remove|stamp PATH`.
past_program() {
    cc -O1 -x c -o past - <<'C'
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
static __attribute__((noinline)) long call(long n, long a, long b, long c, long d) {
    long r;
    register long r10 asm("r10") = d;
    asm volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    return r;
}
int main(int c, char **v) {
    long p = (long)v[2], r = 1;
    if (!strcmp(v[1], "make")) r = call(SYS_openat, AT_FDCWD, p, O_CREAT | O_WRONLY, 0644);
    if (!strcmp(v[1], "append")) r = call(SYS_openat, AT_FDCWD, p, O_APPEND | O_WRONLY, 0);
    if (!strcmp(v[1], "remove")) r = call(SYS_unlinkat, AT_FDCWD, p, 0, 0);
    if (!strcmp(v[1], "stamp")) r = call(SYS_utimensat, AT_FDCWD, p, 0, 0);
    printf("past %ld\n", r);
}
C
}

# kernel_mounts PATH: how many mounts of ours the kernel has there.
kernel_mounts() { awk -v at="$1" '$2 == at && $3 == "fuse.bypath"' /proc/mounts | wc -l; }

# outside_in DIR: from here on `outside COMMAND` is done there by a shell that no session has started, and prints what it
# printed. $shell is its number, to be killed in the end.
outside_in() {
    mkfifo ask answer
    export work
    ( while read -r line <"$work/ask"; do (cd "$1" && eval "$line") >"$work/answer" 2>&1; done ) &
    shell=$!
    outside() { echo "$*" >"$work/ask" && cat "$work/answer"; }
    export -f outside
}

# What a session and `outside` see of each other in one directory with f, long and sub/deep/g, whose path is $1; and what that prints.
one_directory='
cd "$1"
outside cat f sub/deep/g; outside sed -n 39999p long
echo new >made && outside cat made
outside "echo theirs >out && mkdir -p box && mv f box/f && echo more >>made"
cat out box/f made; ls; [ -e f ] && echo "f is still there"
outside ls | cmp - <(ls) && echo same lists
outside stat -c %i:%s:%h:%Y made >a; stat -c %i:%s:%h:%Y made | cmp - a && echo same attributes
rm a'
one_directory_says='below
far
39999
new
theirs
below
new
more
box
long
made
out
sub
same lists
same attributes'
