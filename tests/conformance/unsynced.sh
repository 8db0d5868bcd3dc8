#!/bin/bash
# own
# needs: strace
# On a mount with sync=none no call of a program waits for the medium, by whichever way it asks for that; errors stay.
# Method: a program that asks in every way, with what the kernel was asked beside it, without the option and with.
set -u
failed=0
fail() { echo "$*" && failed=1; }
mkdir lower
cat >asks.c <<'C'
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#define TRY(call) do { errno = 0; long r = (call); printf("%s: %ld %s\n", #call, r, r < 0 ? strerrorname_np(errno) : ""); } while (0)
int main(int argc, char **argv) {
    if (argc == 2) { // After exec, by an inherited descriptor.
        TRY(fsync(atoi(argv[1])));
        return 0;
    }
    int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644), dir = open(".", O_RDONLY | O_DIRECTORY), pipes[2];
    if (write(fd, "x", 1) != 1 || ftruncate(fd, 8192) || pipe(pipes)) return 1;
    TRY(fsync(fd)); TRY(fdatasync(fd)); TRY(syncfs(fd)); TRY(fsync(dir)); TRY(fdatasync(dir)); TRY(syncfs(dir));
    TRY(syscall(SYS_fsync, fd)); TRY(syscall(SYS_fdatasync, fd));
    TRY(sync_file_range(fd, 0, 1, 7)); TRY(sync_file_range(fd, 0, 1, 8)); TRY(sync_file_range(fd, -1, 1, 7));
    sync();
    char *map = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    map[0] = 'y';
    TRY(msync(map, 8192, MS_SYNC)); TRY(msync(map, 4096, MS_SYNC | MS_INVALIDATE)); TRY(msync(map + 1, 1, MS_SYNC)); TRY(msync(map, 8192, MS_SYNC | MS_ASYNC));
    int synced = open("s", O_WRONLY | O_CREAT | O_SYNC, 0644), data = open("s", O_WRONLY | O_DSYNC);
    TRY(write(synced, "z", 1)); TRY(write(data, "z", 1));
    struct iovec vec = {"w", 1};
    TRY(pwritev2(fd, &vec, 1, 0, RWF_SYNC)); TRY(pwritev2(fd, &vec, 1, 0, RWF_DSYNC));
    struct aiocb block = {.aio_fildes = fd};
    const struct aiocb *list[] = {&block};
    TRY(aio_fsync(O_SYNC, &block)); TRY(aio_suspend(list, 1, 0)); TRY(aio_error(&block));
    int copy = dup(fd);
    close(fd);
    unlink("f");
    TRY(fsync(copy)); TRY(fsync(pipes[0])); TRY(fsync(99)); TRY(fsync(open("s", O_PATH)));
    fflush(stdout);
    if (!fork()) { fsync(copy); _exit(0); }
    wait(0);
    char text[9];
    snprintf(text, sizeof text, "%d", copy);
    execl("/proc/self/exe", argv[0], text, (char *)0);
    return 1;
}
C
cc -O1 -Wall -o asks asks.c || exit 1
asking=' (fsync|fdatasync|syncfs|sync_file_range)\(|sync\(\)|MS_SYNC|O_D?SYNC|RWF_D?SYNC'
asked() { # OPTION OUTPUT: how often the kernel was asked to sync
    strace -f -o trace -e trace=fsync,fdatasync,sync,syncfs,sync_file_range,msync,open,openat,openat2,pwritev2 \
        "$bypath" run --no-fuse --mount "host:$PWD/lower:/lower$1" -- sh -c 'cd /lower && exec "$0"' "$PWD/asks" >"$2" 2>err || fail "exit code $? $(head -3 err)"
    grep -cE "$asking" trace
}
before=$(asked '' plain)
asked ,sync=none none >/dev/null
[ "$before" -ge 20 ] || fail "without the option only $before syncs: this test shows nothing"
# What the kernel refuses it still refuses: a pipe, a bad number, a handle, wrong flags of msync (two).
grep -E "$asking" trace | grep -vE '= -1 E(INVAL|BADF)' >left
[ -s left ] && fail "with the option:" && cat left
diff plain none || fail "not the same results"
[ $failed -eq 0 ] && echo "$before syncs asked of the kernel without the option, none with it"
exit $failed
