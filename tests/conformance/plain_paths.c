// Paths by every call that reads, through symlinks, dots, slashes, what is missing and what is no directory: results and errors.
// ways: short both host cached cached-fuse fuse kernel
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static const char *paths[] = {
    "d", "d/", "d/f", "d/f/", "d//f", "d/./f", "d/../d/f", "d/s", "d/s/", "l", "l/", "l/f", "l/s", "loop", "loop/x", "dangling", "dangling/x",
    "d/none", "d/none/x", "d/f/x", "none", ".", "..", "./d/f", "", "d/out", "d/out/", "d/fifo", "secret/x", "d/abs", "d/abs/",
};

static void say(const char *call, const char *path, long result) {
    printf("%s '%s' %ld %s\n", call, path, result, result < 0 ? strerrorname_np(errno) : "");
}

static void look(int dir, const char *path) {
    struct stat st;
    struct statx sx;
    char text[64];
    memset(&st, 0, sizeof st);
    say("stat", path, fstatat(dir, path, &st, 0));
    printf("  %o %ld\n", st.st_mode, S_ISDIR(st.st_mode) ? 0 : (long)st.st_size);
    memset(&st, 0, sizeof st);
    say("lstat", path, fstatat(dir, path, &st, AT_SYMLINK_NOFOLLOW));
    printf("  %o\n", st.st_mode);
    say("statx", path, statx(dir, path, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &sx));
    for (int mode = 0; mode < 8; mode++) say("access", path, faccessat(dir, path, mode, AT_EACCESS));
    say("readlink", path, readlinkat(dir, path, text, sizeof text) > 0 ? 1 : -1);
    int flags[] = {O_RDONLY, O_WRONLY, O_RDONLY | O_NOFOLLOW, O_RDONLY | O_DIRECTORY, O_PATH, O_PATH | O_NOFOLLOW, O_RDWR | O_CREAT | O_EXCL};
    for (int i = 0; i < 7; i++) {
        if (i == 6 && strchr(path, 'n') != NULL) continue; // Would be made.
        int fd = openat(dir, path, flags[i] | O_NONBLOCK, 0600);
        say("open", path, fd < 0 ? -1 : 0);
        if (fd >= 0) {
            struct stat by = {0};
            say("fstat", path, fstat(fd, &by));
            printf("  %o\n", by.st_mode);
            if (S_ISDIR(by.st_mode) && flags[i] == O_RDONLY) printf("  file in it %d\n", faccessat(fd, "f", F_OK, 0));
            close(fd);
        }
    }
}

int main(void) {
    mkdir("d", 0755);
    close(open("d/f", O_CREAT | O_WRONLY, 0640));
    setxattr("d/f", "user.a", "value", 5, 0);
    symlink("f", "d/s");
    symlink("d", "l");
    symlink("loop", "loop");
    symlink("nowhere", "dangling");
    symlink("../d/f", "d/out");
    mkfifo("d/fifo", 0600);
    mkdir("secret", 0700);
    char absolute[4096];
    getcwd(absolute, sizeof absolute - 8);
    strcat(absolute, "/d/f");
    symlink(absolute, "d/abs");
    int dir = open(".", O_RDONLY | O_DIRECTORY);
    for (unsigned i = 0; i < sizeof paths / sizeof *paths; i++) {
        char value[16];
        look(AT_FDCWD, paths[i]);
        look(dir, paths[i]);
        say("getxattr", paths[i], getxattr(paths[i], "user.a", value, sizeof value));
        say("lgetxattr", paths[i], lgetxattr(paths[i], "user.none", value, sizeof value));
        say("listxattr", paths[i], listxattr(paths[i], NULL, 0) < 0 ? -1 : 0);
    }
    // What lies at a path may change between two calls of one program.
    unlink("l");
    symlink("secret", "l");
    look(AT_FDCWD, "l/f");
    rename("secret", "moved");
    look(AT_FDCWD, "l/f");
    unlink("d/abs");
    return 0;
}
