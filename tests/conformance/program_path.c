// What a program in the mount, and another process, are told of its own path: /proc/self/exe by every call, AT_EXECFN, the
// command name; while it is there, when another has its name, and when it is removed.
// ways: short both patched kernel fuse
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char here[PATH_MAX];

/* A path below the working directory, which has another name on each way. */
static const char *below(const char *path) {
    size_t len = strlen(here);
    return strncmp(path, here, len) == 0 ? path + len : path;
}

static void link_of(const char *what, const char *link) {
    char text[PATH_MAX];
    ssize_t len = readlink(link, text, sizeof text - 1);
    text[len < 0 ? 0 : len] = 0;
    printf("%s: readlink %s\n", what, len < 0 ? strerror(errno) : below(text));
}

static void same(const char *what, const char *one, const char *other) {
    struct stat a = {0}, b = {0};
    int first = stat(one, &a), second = stat(other, &b);
    printf("%s: %d %d same file %d size %d\n", what, first, second, a.st_dev == b.st_dev && a.st_ino == b.st_ino, a.st_size == b.st_size);
}

static int inside(const char *self) {
    char text[PATH_MAX], name[17] = "";
    link_of("self", "/proc/self/exe");
    sprintf(text, "/proc/%d/exe", getpid());
    link_of("number", text);
    sprintf(text, "/proc/self/task/%d/exe", getpid());
    link_of("thread", text);
    char part[5] = "....";
    printf("short buffer %zd\n", readlink("/proc/self/exe", part, 4));
    printf("realpath %s\n", below(realpath("/proc/self/exe", text) ? text : strerror(errno)));
    printf("AT_EXECFN %s\n", below(realpath((const char *)getauxval(AT_EXECFN), text) ? text : "none"));
    prctl(PR_GET_NAME, name);
    printf("comm %s\n", name);
    same("stat", "/proc/self/exe", self);
    struct stat link;
    int result = lstat("/proc/self/exe", &link);
    printf("lstat %d symlink %d\n", result, S_ISLNK(link.st_mode));
    printf("access %d %d\n", access("/proc/self/exe", X_OK), access("/proc/self/exe/x", X_OK));
    int fd = open("/proc/self/exe", O_RDONLY), other = open(self, O_RDONLY);
    char a[64] = "", b[64] = "x";
    ssize_t first = read(fd, a, 64), second = read(other, b, 64);
    printf("read %zd %zd same %d\n", first, second, memcmp(a, b, 64) == 0);
    close(fd), close(other);
    pid_t child = fork();
    if (child == 0) {
        sprintf(text, "/proc/%d/exe", getppid());
        link_of("parent", text);
        same("parent", text, self);
        fflush(stdout);
        /* Once more, by the link itself. */
        execl("/proc/self/exe", "again", "again", (char *)0);
        _exit(1);
    }
    waitpid(child, 0, 0);
    rename("other", self);
    link_of("replaced", "/proc/self/exe");
    unlink(self);
    link_of("removed", "/proc/self/exe");
    fd = open("/proc/self/exe", O_RDONLY);
    printf("removed: read %zd\n", read(fd, b, 64));
    printf("same as before %d\n", memcmp(a, b, 64) == 0);
    return 0;
}

int main(int argc, char **argv) {
    setvbuf(stdout, 0, _IOLBF, 0);
    if (!getcwd(here, sizeof here)) return 1;
    if (argc == 2 && strcmp(argv[1], "again") == 0) {
        link_of("again", "/proc/self/exe");
        return 0;
    }
    if (argc == 2) return inside(argv[1]);
    char command[PATH_MAX * 2];
    mkdir("bin", 0755);
    symlink("bin", "link");
    sprintf(command, "cp /proc/%d/exe bin/program-of-ours; echo other >other; chmod 755 other", getpid());
    system(command);
    pid_t child = fork();
    if (child == 0) {
        execl("link/program-of-ours", "named", "bin/program-of-ours", (char *)0);
        _exit(1);
    }
    int status;
    waitpid(child, &status, 0);
    printf("status %d\n", status);
    return 0;
}
