// An open FIFO is the file that its name leads to: what fstat says, what is changed through it, its name in /proc; and it is
// gone when it is removed.
// ways: short both patched
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char here[PATH_MAX];

static void same(const char *what, int fd, const char *name) {
    struct stat one, other;
    if (fstat(fd, &one) || stat(name, &other)) return perror(what);
    printf("%s: file %d mode %o %o owner %d %d %d %d times %d links %d %d\n", what, one.st_dev == other.st_dev && one.st_ino == other.st_ino,
        one.st_mode, other.st_mode, one.st_uid, one.st_gid, other.st_uid, other.st_gid,
        one.st_mtim.tv_sec == other.st_mtim.tv_sec && one.st_ctim.tv_sec == other.st_ctim.tv_sec, (int)one.st_nlink, (int)other.st_nlink);
}

int main(void) {
    char name[64], text[PATH_MAX] = "";
    if (!getcwd(here, sizeof here)) return 1;
    mkfifo("p", 0640);
    chown("p", 5, 6);
    int fd = open("p", O_RDWR);
    same("open", fd, "p");
    fchmod(fd, 0600);
    fchown(fd, 7, 8);
    futimens(fd, (struct timespec[]){{1, 0}, {2, 0}});
    same("changed", fd, "p");
    chmod("p", 0666);
    same("changed by name", fd, "p");
    sprintf(name, "/proc/self/fd/%d", fd);
    readlink(name, text, sizeof text - 1);
    printf("name %s\n", strncmp(text, here, strlen(here)) ? text : text + strlen(here));
    char byte = 0;
    int writer = open("p", O_WRONLY), reader = open("p", O_RDONLY | O_NONBLOCK);
    write(writer, "x", 1);
    printf("read %zd\n", read(reader, &byte, 1));
    /* A child that executes another program has it too. */
    pid_t child = fork();
    if (child == 0) {
        dup2(fd, 0);
        execlp("stat", "stat", "-L", "-c", "%a %F %u", "/dev/stdin", (char *)0);
    }
    waitpid(child, 0, 0);
    rename("p", "q");
    same("renamed", fd, "q");
    unlink("q");
    printf("gone %d\n", open("q", O_RDWR));
    return 0;
}
