// The mode of a symlink cannot be changed, by whatever way it is reached.
// ways: short both patched kernel host cached cached-fuse
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void told(const char *what, int result) {
    struct stat link;
    lstat("link", &link);
    printf("%s: %s, mode %o\n", what, result ? strerrorname_np(errno) : "ok", link.st_mode);
}

int main(void) {
    char name[40];
    close(open("file", O_CREAT | O_RDWR, 0644));
    symlink("file", "link");
    int fd = open("link", O_PATH | O_NOFOLLOW);
    sprintf(name, "/proc/self/fd/%d", fd);
    told("by descriptor's name", chmod(name, 0600));
    told("fchmodat", fchmodat(AT_FDCWD, name, 0600, 0));
    told("fchmodat nofollow", fchmodat(AT_FDCWD, "link", 0640, AT_SYMLINK_NOFOLLOW));
    told("fchmod", fchmod(fd, 0640));
    told("fchmodat2 empty", syscall(452, fd, "", 0640, AT_EMPTY_PATH));
    told("follow", chmod("link", 0600));
    return 0;
}
