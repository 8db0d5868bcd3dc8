# What a thread can't have of its own is refused, with a line once a session, and all is as before: descriptors of ours, and
# without a kernel mount a working directory.
# own
. "$(dirname "$0")/own.sh"
cc -w -pthread -x c -o ask - <<'C'
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static void told(const char *what, int result) { printf("%s %s, ", what, result ? strerrorname_np(errno) : "done"); }
static void *ask(void *unused) {
    char text[8] = "";
    int fd = open("m/f", O_CREAT | O_RDWR | O_TRUNC, 0600);
    write(fd, "hello", 5);
    told("files", unshare(CLONE_FILES));
    told("range", close_range(fd, fd, 2));
    pread(fd, text, 5, 0);
    printf("%s, ", text);
    chdir("m");
    int result = unshare(CLONE_FS);
    told("fs", result);
    if (result) {
        chdir("..");
        told("outside", unshare(CLONE_FS));
        told("in", chdir("m"));
    }
    fflush(stdout);
    return 0;
}
int main(void) {
    told("alone", unshare(CLONE_FILES | CLONE_FS));
    pthread_t thread;
    pthread_create(&thread, 0, ask, 0);
    pthread_join(thread, 0);
    printf("%s\n", access("f", F_OK) ? "outside" : "inside");
}
C
"$bypath" mkfs i.img --size 64M >/dev/null
mkdir m
wanted='alone done, files EINVAL, range EINVAL, hello, fs EINVAL, outside done, in EOPNOTSUPP, outside'
same "without a kernel mount" "$("$bypath" run --no-fuse --mount "i.img:$PWD/m" -- sh -c './ask && ./ask' 2>said)" "$wanted
$wanted"
same "lines" "$(grep -c 'this is said once' said)" 2
if [ -c /dev/fuse ]; then
    # The first thread is in the same directory with the second one until that parts, and stays there.
    wanted='alone done, files EINVAL, range EINVAL, hello, fs done, inside'
    same "beside one" "$("$bypath" run --mount "i.img:$PWD/m" -- ./ask 2>said)" "$wanted"
fi
exit "${failed:-0}"
