/* Pointers that lead nowhere: null, the first page, the kernel's half of the
 * addresses. Every call answers EFAULT, and changes nothing. A call on a pipe
 * is the kernel's own. */
#include "t.h"
#include <poll.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <sys/xattr.h>

static void *bad;

int main(int argc, char **argv) {
    begin(argc, argv);
    int pipes[2], file = open("f", O_RDWR | O_CREAT, 0644), top = open(".", O_RDONLY | O_DIRECTORY);
    pipe(pipes);
    write(file, "contents", 8);
    write(pipes[1], "pipe", 4);
    void *all[] = {NULL, (void *)4095, (void *)(1UL << 63), (void *)~0UL, (void *)-4096L};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        bad = all[i];
        say("pointer %u", i);
        struct stat st;
        R(open(bad, O_RDONLY));
        R(open(bad, O_RDWR | O_CREAT, 0644));
        R(openat(top, bad, O_RDONLY));
        R(stat(bad, &st));
        R(lstat(bad, &st));
        R(stat("f", bad));
        R(fstat(file, bad));
        R(access(bad, F_OK));
        R(chmod(bad, 0600));
        R(chown(bad, 1, 1));
        R(lchown(bad, 1, 1));
        R(mkdir(bad, 0755));
        R(rmdir(bad));
        R(unlink(bad));
        R(mkfifo(bad, 0644));
        R(mknod(bad, S_IFREG | 0644, 0));
        R(truncate(bad, 0));
        R(link("f", bad));
        R(link(bad, "g"));
        R(rename("f", bad));
        R(rename(bad, "g"));
        R(symlink("f", bad));
        R(symlink(bad, "g"));
        R(readlink(bad, (char[8]){0}, 8));
        R(chdir(bad));
        R(utimensat(top, "f", i ? bad : (void *)~0UL, 0));
        R(setxattr("f", bad, "x", 1, 0));
        R(setxattr(bad, "user.x", "x", 1, 0));
        R(pread(file, bad, 4, 0));
        R(pwrite(file, bad, 4, 0));
        R(preadv(file, &(struct iovec){bad, 4}, 1, 0));
        R(writev(file, &(struct iovec){bad, 4}, 1));
        R(writev(file, bad, 1));
        R(fcntl(file, F_SETLK, bad));
        R(statfs("f", bad));
        R(read(pipes[0], bad, 4));
        R(write(pipes[1], bad, 4));
        R(writev(pipes[1], &(struct iovec){bad, 4}, 1));
        R(write(pipes[1], bad, 0));
        R(poll(bad, 1, 0));
        P(fopen(bad, "r"));
        R(execv(bad, argv));
    }
    char text[16] = "";
    R(read(pipes[0], text, sizeof text));
    say("%s", text);
    R(lseek(file, 0, SEEK_CUR));
    show("f");
    R(access("g", F_OK));
    return 0;
}
