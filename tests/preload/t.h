/* What the tests share: every line they print is a call and what came of it, so
 * that the same program can be run in two directories and its output compared. */
#ifndef T_H
#define T_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static FILE *out; /* the report; a kernel file, whatever happens to stdout */

__attribute__((unused)) static void say(const char *format, ...) {
    int saved = errno;
    va_list args;
    va_start(args, format);
    vfprintf(out, format, args);
    va_end(args);
    fputc('\n', out);
    fflush(out);
    errno = saved;
}

/* Prints a result and, if it is a failure, the name of errno. */
#define R(call)                                                                                                        \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        long r_ = (long)(call);                                                                                        \
        say("%s = %ld%s%s", #call, r_, r_ == -1 ? " " : "", r_ == -1 ? strerrorname_np(errno) : "");                   \
    } while (0)

/* The same for functions that return a pointer: only whether it is null. */
#define P(call)                                                                                                        \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        const void *p_ = (call);                                                                                       \
        say("%s = %s%s", #call, p_ ? "set" : "null ", p_ ? "" : strerrorname_np(errno));                               \
    } while (0)

/* Prints the contents of a file, by plain system calls. */
__attribute__((unused)) static void show(const char *path) {
    char text[4096];
    int fd = open(path, O_RDONLY);
    if (fd < 0) {
        say("%s: %s", path, strerrorname_np(errno));
        return;
    }
    long sum = 0, len = 0, got;
    int first = 1;
    while ((got = read(fd, text, sizeof text)) > 0) {
        for (long i = 0; i < got; i++)
            sum = sum * 31 + (unsigned char)text[i];
        len += got;
        if (first && got <= 400)
            say("%s: [%.*s]", path, (int)got, text);
        first = 0;
    }
    say("%s: %ld bytes, sum %lx", path, len, sum);
    close(fd);
}

/* Usage: test DIRECTORY REPORT. */
__attribute__((unused)) static void begin(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: %s DIRECTORY REPORT\n", argv[0]);
        exit(2);
    }
    int fd = open(argv[2], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    fd = fcntl(fd, F_DUPFD_CLOEXEC, 100);
    out = fd < 0 ? NULL : fdopen(fd, "w");
    close(3);
    if (!out || chdir(argv[1]) < 0) {
        perror(argv[1]);
        exit(2);
    }
}
#endif
