/*
 * Five daemons, an image and a directory by the C API: all is walked, and a file goes from each
 * to the next. In a session of `bypath run` what libc sees (by the library that is loaded into
 * this program too) is the same; without one, this program starts the daemons itself.
 *
 *   session joined POINT…              each can be written; /all is an image, and /all/below can be read only
 *   session made SOURCE POINT…         the same, where the mounts are made here
 *   session one SOURCE                 one of them, started here, does the usual things
 *   session alone DIR                  what a directory of the kernel's does, and what is refused
 */
#define _GNU_SOURCE
#include "bypath.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(what) do { if (!(what)) { printf("line %d: %s: %s\n", __LINE__, #what, strerror(errno)); exit(1); } } while (0)

static long files, bytes;

static void walk(bp_ns *ns, const char *path)
{
    struct dirent *entry;
    bp_dir *dir = bp_opendir(ns, path);
    MUST(dir);
    while ((entry = bp_readdir(dir))) {
        char below[4096];
        struct stat about;
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        snprintf(below, sizeof below, "%s/%s", path, entry->d_name);
        MUST(bp_lstat(ns, below, &about) == 0);
        if (S_ISDIR(about.st_mode))
            walk(ns, below);
        else if (S_ISREG(about.st_mode)) {
            files++;
            bytes += about.st_size;
        }
    }
    MUST(bp_closedir(dir) == 0);
}

static void copy(bp_ns *ns, const char *from, const char *to)
{
    static char part[30000];
    ssize_t got;
    int in = bp_open(ns, from, O_RDONLY, 0), out = bp_open(ns, to, O_CREAT | O_EXCL | O_WRONLY, 0640);
    MUST(in >= 0 && out >= 0);
    while ((got = bp_read(ns, in, part, sizeof part)) > 0)
        MUST(bp_write(ns, out, part, got) == got);
    MUST(got == 0 && bp_close(ns, in) == 0 && bp_close(ns, out) == 0);
}

/* The bytes of `path` are those of the first; by libc's calls too, in a session. */
static void compare(bp_ns *ns, const char *path, const char *text, size_t len, int joined)
{
    char *other = malloc(len + 1);
    int fd = bp_open(ns, path, O_RDONLY, 0);
    MUST(other && fd >= 0 && bp_pread(ns, fd, other, len + 1, 0) == (ssize_t)len && !memcmp(text, other, len));
    MUST(bp_close(ns, fd) == 0);
    if (joined) {
        memset(other, 0, len);
        fd = open(path, O_RDONLY);
        MUST(fd >= 0 && pread(fd, other, len + 1, 0) == (ssize_t)len && !memcmp(text, other, len) && close(fd) == 0);
    }
    free(other);
}

static int all(bp_ns *ns, int count, char **points, int joined)
{
    char before[4096] = "/all/below/d/big", path[4096], *text;
    struct stat about;
    MUST(bp_stat(ns, before, &about) == 0);
    size_t len = about.st_size;
    int fd = bp_open(ns, before, O_RDONLY, 0);
    MUST(fd >= 0 && (text = bp_mmap(ns, NULL, len, PROT_READ, MAP_PRIVATE, fd, 0)) != MAP_FAILED);
    MUST(bp_mkdir(ns, "/all/below/x", 0700) == -1);
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/by-c", points[i]);
        copy(ns, before, path);
        compare(ns, path, text, len, joined);
        snprintf(path, sizeof path, "%s/moved", points[i]);
        snprintf(before, sizeof before, "%s/by-c", points[i]);
        MUST(bp_rename(ns, before, path) == 0 && bp_access(ns, before, F_OK) == -1 && errno == ENOENT);
        strcpy(before, path);
        /* What libc's calls do beside ours is seen. */
        MUST((joined ? chmod(path, 0600) : bp_chmod(ns, path, 0600)) == 0 && bp_stat(ns, path, &about) == 0 && (about.st_mode & 07777) == 0600);
        snprintf(path, sizeof path, "%s/moved", points[(i + 1) % count]);
        /* A link is refused first for a name that is there, as the last one's is. */
        int linked = i + 1 < count ? EXDEV : EEXIST;
        MUST(bp_rename(ns, before, path) == -1 && errno == EXDEV && bp_link(ns, before, path) == -1 && errno == linked);
    }
    MUST(bp_munmap(ns, text, len) == 0);
    /* A child has mounts of its own; its end takes nothing from us. */
    pid_t child = fork();
    MUST(child >= 0);
    if (!child) {
        MUST(bp_read(ns, fd, path, 1) == -1 && errno == EBADF);
        bp_ns *own = bp_open_namespace();
        if (joined) {
            MUST(bp_mount_session(own) == 0);
            int in = bp_open(own, before, O_RDONLY, 0);
            MUST(in >= 0 && bp_read(own, in, path, 4) == 4 && !memcmp(path, "1\n2\n", 4));
        }
        _exit(0);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child && status == 0);
    MUST(bp_pread(ns, fd, path, 4, 0) == 4 && !memcmp(path, "1\n2\n", 4) && bp_close(ns, fd) == 0);
    for (int i = 0; i < count; i++)
        walk(ns, points[i]);
    printf("%ld files, %ld bytes\n", files, bytes);
    MUST(bp_close_namespace(ns) == 0);
    return 0;
}

static int joined(int count, char **points)
{
    bp_ns *ns = bp_open_namespace();
    MUST(bp_mount_session(ns) == 0);
    /* Twice at the same places is refused, and leaves what is there. */
    MUST(bp_mount_session(ns) == -1 && errno == EBUSY);
    return all(ns, count, points, 1);
}

static int made(int count, char **pairs)
{
    char *points[16];
    int writable = 0;
    bp_ns *ns = bp_open_namespace();
    for (int i = 0; i + 1 < count && i < 32; i += 2) {
        MUST(bp_mount(ns, pairs[i], pairs[i + 1], NULL) == 0);
        if (strcmp(pairs[i + 1], "/all/below"))
            points[writable++] = pairs[i + 1];
    }
    return all(ns, writable, points, 0);
}

static int one(const char *source)
{
    char path[64], text[64];
    struct stat about;
    struct dirent *entry;
    int names = 0;
    bp_ns *ns = bp_open_namespace();
    MUST(bp_mount(ns, source, "/v", NULL) == 0 && bp_mkdir(ns, "/v/by-c", 0755) == 0 && bp_chdir(ns, "/v/by-c") == 0);
    for (int i = 0; i < 40; i++) {
        snprintf(path, sizeof path, "name-%d", i);
        int fd = bp_open(ns, path, O_CREAT | O_EXCL | O_RDWR, 0640);
        MUST(fd >= 0 && bp_write(ns, fd, path, strlen(path)) == (ssize_t)strlen(path) && bp_pread(ns, fd, text, sizeof text, 5) == (ssize_t)strlen(path) - 5);
        MUST(!memcmp(text, path + 5, strlen(path) - 5) && bp_close(ns, fd) == 0);
    }
    MUST(bp_rename(ns, "name-7", "/v/by-c/name-8") == 0 && bp_stat(ns, "name-7", &about) == -1 && errno == ENOENT);
    MUST(bp_stat(ns, "name-8", &about) == 0 && about.st_size == 6 && bp_truncate(ns, "name-8", 3) == 0 && bp_stat(ns, "name-8", &about) == 0 && about.st_size == 3);
    MUST(bp_symlink(ns, "name-9", "link") == 0 && bp_readlink(ns, "link", text, sizeof text) == 6 && bp_stat(ns, "link", &about) == 0 && S_ISREG(about.st_mode));
    bp_dir *dir = bp_opendir(ns, ".");
    MUST(dir);
    while ((entry = bp_readdir(dir)))
        names += entry->d_name[0] != '.';
    MUST(bp_closedir(dir) == 0 && names == 40 && bp_rmdir(ns, "/v/by-c") == -1 && errno == ENOTEMPTY);
    MUST(bp_unlink(ns, "link") == 0);
    for (int i = 0; i < 40; i++) {
        snprintf(path, sizeof path, "name-%d", i);
        MUST(i == 7 || bp_unlink(ns, path) == 0);
    }
    MUST(bp_chdir(ns, "/v") == 0 && bp_rmdir(ns, "by-c") == 0 && bp_umount(ns, "/v") == 0 && bp_close_namespace(ns) == 0);
    puts("good");
    return 0;
}

/* How many descriptors of the kernel's there are. */
static int open_files(void)
{
    int count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static int alone(const char *dir)
{
    char source[4096], text[16];
    struct stat about, beside;
    pid_t child;
    int status;
    bp_ns *ns = bp_open_namespace();
    MUST(bp_mount_session(ns) == -1 && errno == ENOENT);
    snprintf(source, sizeof source, "host:%s", dir);
    MUST(bp_mount(ns, source, "/h", NULL) == 0 && bp_mount(ns, source, "/r", "ro") == 0 && bp_mount(ns, "mem:", "/h/m", NULL) == -1);
    MUST(bp_mount(ns, "host:/nonexistent", "/n", NULL) == -1 && errno == ENOENT);
    MUST(bp_mount(ns, "host:/etc/passwd", "/n", NULL) == -1 && errno == ENOTDIR);
    int before = open_files();
    int fd = bp_open(ns, "/h/f", O_CREAT | O_EXCL | O_RDWR | O_APPEND, 0640);
    MUST(fd == 3 && bp_write(ns, fd, "hello", 5) == 5 && bp_dup2(ns, fd, 40) == 40 && bp_write(ns, 40, "!\n", 2) == 2);
    MUST(bp_open(ns, "/r/f", O_WRONLY, 0) == -1 && errno == EROFS);
    int second = bp_open(ns, "/r/f", O_RDONLY, 0);
    MUST(second >= 0 && bp_read(ns, second, text, 16) == 7 && !memcmp(text, "hello!\n", 7));
    snprintf(source, sizeof source, "%s/f", dir);
    MUST(bp_fstat(ns, fd, &about) == 0 && stat(source, &beside) == 0 && about.st_ino == beside.st_ino && about.st_dev == beside.st_dev);
    /* The mask is the namespace's; its maker may use a file whatever the mode says. */
    bp_umask(ns, 0);
    MUST(bp_close(ns, second) == 0 && bp_mkdir(ns, "/h/open", 0777) == 0 && bp_stat(ns, "/h/open", &about) == 0 && (about.st_mode & 07777) == 0777);
    child = fork();
    MUST(child >= 0);
    if (!child) {
        /* For anybody but root. */
        if (!geteuid())
            MUST(setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0);
        bp_ns *other = bp_open_namespace();
        snprintf(source, sizeof source, "host:%s/open", dir);
        MUST(bp_mount(other, source, "/o", NULL) == 0);
        int own = bp_open(other, "/o/sealed", O_CREAT | O_EXCL | O_RDWR, 0400);
        MUST(own >= 0 && bp_write(other, own, "x", 1) == 1 && bp_ftruncate(other, own, 9) == 0 && bp_close(other, own) == 0);
        MUST(bp_open(other, "/o/sealed", O_WRONLY, 0) == -1 && errno == EACCES);
        _exit(0);
    }
    MUST(waitpid(child, &status, 0) == child && status == 0);
    MUST(bp_stat(ns, "/h/open/sealed", &about) == 0 && about.st_size == 9 && (about.st_mode & 07777) == 0400 && bp_unlink(ns, "/h/open/sealed") == 0);
    /* Open without a name; and what takes the name is another. */
    second = bp_open(ns, "/h/open/u", O_CREAT | O_RDWR, 0600);
    MUST(second >= 0 && bp_write(ns, second, "first", 5) == 5 && bp_unlink(ns, "/h/open/u") == 0);
    int third = bp_open(ns, "/h/open/u", O_CREAT | O_EXCL | O_RDWR, 0600);
    MUST(third >= 0 && bp_write(ns, third, "second", 6) == 6 && bp_pread(ns, second, text, 16, 0) == 5 && !memcmp(text, "first", 5));
    MUST(bp_fchmod(ns, second, 0640) == 0 && bp_fstat(ns, second, &about) == 0 && about.st_nlink == 0 && (about.st_mode & 07777) == 0640);
    MUST(bp_ftruncate(ns, second, 2) == 0 && bp_pread(ns, second, text, 16, 0) == 2 && bp_fsync(ns, second) == 0 && bp_fdatasync(ns, second) == 0);
    MUST(bp_fallocate(ns, third, 0, 0, 1 << 20) == 0 && bp_fstat(ns, third, &about) == 0 && about.st_size == 1 << 20);
    MUST(bp_pwrite(ns, third, "far", 3, 1 << 22) == 3 && bp_lseek(ns, third, 1 << 21, SEEK_DATA) == 1 << 22);
    MUST(bp_fsetxattr(ns, third, "user.a", "b", 1, 0) == 0 && bp_fgetxattr(ns, third, "user.a", text, 16) == 1 && text[0] == 'b');
    /* Two names of one file: closing one leaves the other open. */
    MUST(bp_link(ns, "/h/open/u", "/h/open/v") == 0);
    int fourth = bp_open(ns, "/h/open/v", O_WRONLY | O_TRUNC, 0);
    MUST(fourth >= 0 && bp_fstat(ns, third, &about) == 0 && about.st_size == 0 && bp_write(ns, fourth, "by v", 4) == 4 && bp_close(ns, fourth) == 0);
    MUST(bp_pread(ns, third, text, 16, 0) == 4 && !memcmp(text, "by v", 4) && bp_close(ns, third) == 0 && bp_close(ns, second) == 0);
    MUST((fourth = bp_open(ns, "/h/open/v", O_WRONLY, 0)) >= 0 && bp_read(ns, fourth, text, 1) == -1 && errno == EBADF && bp_close(ns, fourth) == 0);
    MUST(bp_open(ns, "/h/open", O_TMPFILE | O_RDWR, 0600) == -1 && errno == EOPNOTSUPP);
    MUST(bp_symlink(ns, "../../../etc/passwd", "/h/up") == 0 && bp_stat(ns, "/h/up", &about) == -1);
    MUST(bp_mount(ns, "fuse:false @", "/n", NULL) == -1 && errno == ENOTCONN);
    MUST(bp_mount(ns, "fuse:true @", "/n", "what") == -1 && errno == EINVAL);
    /* Nobody hears of a child of ours. */
    MUST(wait(NULL) == -1 && errno == ECHILD);
    MUST(bp_umount(ns, "/h") == -1 && errno == EBUSY && bp_close(ns, fd) == 0 && bp_close(ns, 40) == 0);
    MUST(open_files() == before);
    MUST(bp_close_namespace(ns) == 0);
    puts("good");
    return 0;
}

int main(int argc, char **argv)
{
    MUST(argc > 2);
    if (!strcmp(argv[1], "alone"))
        return alone(argv[2]);
    if (!strcmp(argv[1], "one"))
        return one(argv[2]);
    return strcmp(argv[1], "joined") ? made(argc - 2, argv + 2) : joined(argc - 2, argv + 2);
}
